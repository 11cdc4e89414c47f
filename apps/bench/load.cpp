#include "apps/bench/load.hpp"

#include "apps/bench/connection.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::bench {

namespace {

using namespace std::chrono_literals;

constexpr auto tick_interval = 50ms;
constexpr int ticks_per_progress = 20;
constexpr auto connect_pause = 100ms;
constexpr auto readyz_timeout = 2'000ms;

class load : public connection_owner {
 public:
  load(const load_options& options, plan& requests, recorder& records, const load_hooks& hooks)
      : options_(options), plan_(requests), records_(records), hooks_(hooks) {}

  expected<load_summary> run() {
    for (const auto& target : options_.targets) {
      boost::beast::error_code failure;
      auto& s = servers_.emplace_back(target);
      s.addresses = tcp::resolver{io_}.resolve(target.host, target.port, failure);
      if (failure)
        return error{"connect_failed",
                     fmt::format("{}: {}", target.authority(), failure.message())};
    }
    const auto balanced = watch_readiness();
    signals_.async_wait([this](boost::beast::error_code ec, int) {
      if (!ec) interrupt();
    });
    start_ = clock::now();
    tick();
    if (options_.closed_loop > 0)
      for (std::uint32_t i = 0; i < options_.closed_loop; ++i) send_next_of_loop(nullptr);
    else
      schedule();
    io_.run();
    return summary_;
  }

 private:
  /// One of those that requests may go to.
  struct server {
    explicit server(const http_target& t) : target(t) {}
    const http_target& target;
    tcp::resolver::results_type addresses;
    std::vector<std::shared_ptr<connection>> idle;
    std::atomic<bool> ready{true};
  };

  /// Asks several servers, by a thread each, until its destructor.
  class readiness_watch {
   public:
    explicit readiness_watch(std::deque<server>& servers) {
      for (auto& s : servers) threads_.emplace_back([this, &s] { watch(s); });
    }
    ~readiness_watch() {
      {
        std::lock_guard lock{mutex_};
        over_ = true;
      }
      ended_.notify_all();
      for (auto& t : threads_) t.join();
    }
    readiness_watch(const readiness_watch&) = delete;
    readiness_watch& operator=(const readiness_watch&) = delete;

   private:
    void watch(server& s) {
      std::unique_lock lock{mutex_};
      while (!over_) {
        lock.unlock();
        const auto answer = get(s.target, "/readyz", readyz_timeout);
        s.ready = answer && answer->status == 200;
        lock.lock();
        ended_.wait_for(lock, readyz_interval, [this] { return over_; });
      }
    }

    std::mutex mutex_;
    std::condition_variable ended_;
    bool over_ = false;
    std::vector<std::thread> threads_;
  };

  std::unique_ptr<readiness_watch> watch_readiness() {
    if (servers_.size() < 2) return nullptr;
    for (auto& s : servers_) {
      const auto answer = get(s.target, "/readyz", readyz_timeout);
      s.ready = answer && answer->status == 200;
    }
    return std::make_unique<readiness_watch>(servers_);
  }

  /// The next that is ready; if none is, the next one, whose refusal then counts.
  server& next_server() {
    for (std::size_t i = 0; i < servers_.size(); ++i)
      if (auto& s = servers_[turn_++ % servers_.size()]; s.ready) return s;
    return servers_[turn_++ % servers_.size()];
  }

  void close_idle_of_others(const server& wanted) {
    for (auto& s : servers_)
      if (&s != &wanted && !s.idle.empty()) {
        retire(s.idle.back());
        s.idle.pop_back();
        return;
      }
  }

  // -- sending ------------------------------------------------------------------

  /// Open loop: waits for the next request of the plan.
  void schedule() {
    if (!next_) next_ = plan_.next();
    if (!next_) return end_sending();
    schedule_timer_.expires_at(start_ + next_->at);
    schedule_timer_.async_wait([this](boost::beast::error_code ec) {
      if (ec || !sending_) return;
      for (const auto now = clock::now(); next_ && start_ + next_->at <= now; next_ = plan_.next())
        start(*std::move(next_));
      schedule();
    });
  }

  /// Closed loop: the next request of one connection, as soon as it is free.
  void send_next_of_loop(std::shared_ptr<connection> c) {
    if (!sending_) return retire(c);
    const auto now = clock::now() - start_;
    auto planned = now < options_.duration ? plan_.next() : std::nullopt;
    if (!planned) {
      retire(c);
      return end_sending();
    }
    planned->at = now;
    if (c && !open_.at(c)->ready) retire(std::exchange(c, nullptr));
    send(c ? std::move(c) : open(), make_job(*std::move(planned)));
  }

  /// Closed loop: nobody listens, or who does is not believed; without a pause the loop would do
  /// nothing but connect.
  void pause_loop() {
    ++paused_;
    auto timer = std::make_shared<boost::asio::steady_timer>(io_, connect_pause);
    timer->async_wait([this, timer](boost::beast::error_code) {
      --paused_;
      send_next_of_loop(nullptr);
      stop_when_done();
    });
  }

  /// Open loop: a request is due.
  void start(planned_request planned) {
    auto j = make_job(std::move(planned));
    auto& s = next_server();
    if (s.idle.empty() && open_.size() >= options_.connections_max) close_idle_of_others(s);
    if (!s.idle.empty()) {
      auto c = std::move(s.idle.back());
      s.idle.pop_back();
      send(std::move(c), std::move(j));
    } else if (open_.size() < options_.connections_max) {
      send(open(s), std::move(j));
    } else if (backlog_.size() < backlog_requests_max) {
      backlog_.push_back(std::move(j));
    } else {
      outcome o;
      o.error = "backlog_full";
      o.message = fmt::format("{} requests wait for a connection", backlog_.size());
      o.end = clock::now() - j.intended;
      records_.record(j.planned.at, o);
    }
  }

  job make_job(planned_request planned) {
    if (!measuring_ && records_.counts(planned.at)) {
      measuring_ = true;
      hooks_.measuring();
    }
    ++summary_.sent;
    summary_.sending = planned.at;
    job j;
    j.intended = start_ + planned.at;
    j.message = {http::verb::post, options_.path, 11};
    j.message.set(http::field::content_type, "application/json");
    if (hooks_.request_id) j.message.set("X-Request-Id", hooks_.request_id(planned));
    j.message.body() = hooks_.body(planned);
    j.message.prepare_payload();
    j.planned = std::move(planned);
    return j;
  }

  std::shared_ptr<connection> open() { return open(next_server()); }
  std::shared_ptr<connection> open(server& s) {
    ++summary_.connections;
    auto c = std::make_shared<connection>(io_, s.target, s.addresses, json_, *this);
    open_.emplace(c, &s);
    return c;
  }

  void send(std::shared_ptr<connection> c, job j) {
    const auto& target = open_.at(c)->target;
    j.message.target(target.base_path + options_.path);
    j.message.set(http::field::host, target.authority());
    for (const auto& [name, value] : target.headers) j.message.set(name, value);
    auto* gaps = records_.counts(j.planned.at) ? &records_.between_tokens : nullptr;
    c->send(std::move(j), gaps);
  }

  // -- answers --------------------------------------------------------------------

  void on_answer(const std::shared_ptr<connection>& c, const planned_request& planned,
                 outcome o) override {
    if (!summary_.interrupted) {
      records_.record(planned.at, o);
      if (hooks_.answered) hooks_.answered(planned, o);
    }
    auto* at = open_.at(c);
    if (c->closed()) open_.erase(c);
    if (options_.closed_loop > 0) {
      if (o.error == "connect_failed" || o.error == "tls_failed") return pause_loop();
      send_next_of_loop(c->closed() ? nullptr : c);
    } else if (!backlog_.empty()) {
      auto waiting = std::move(backlog_.front());
      backlog_.pop_front();
      const bool usable = !c->closed() && at->ready;
      if (!usable) retire(c);
      send(usable ? c : open(), std::move(waiting));
    } else if (!c->closed()) {
      at->idle.push_back(c);
    }
    stop_when_done();
  }

  void on_stale(const std::shared_ptr<connection>& c, job j) override {
    open_.erase(c);
    ++summary_.resent;
    send(open(), std::move(j));
  }

  // -- the end ----------------------------------------------------------------------

  void retire(const std::shared_ptr<connection>& c) {
    if (!c) return;
    c->drop();
    open_.erase(c);
  }
  void retire_idle(server& s) {
    for (const auto& c : std::exchange(s.idle, {})) retire(c);
  }

  void end_sending() {
    if (sending_) drain_until_ = clock::now() + options_.drain_timeout;
    sending_ = false;
    stop_when_done();
  }

  std::size_t idle_connections() const {
    std::size_t n = 0;
    for (const auto& s : servers_) n += s.idle.size();
    return n;
  }
  bool idle() const {
    return backlog_.empty() && open_.size() == idle_connections() && paused_ == 0;
  }

  void stop_when_done() {
    if (sending_ || !idle()) return;
    for (auto& s : servers_) retire_idle(s);
    tick_timer_.cancel();
    schedule_timer_.cancel();
    signals_.cancel();
  }

  void interrupt() {
    summary_.interrupted = true;
    end_sending();
    abort_busy([](const connection&) { return true; }, "interrupted");
  }

  template <class Which>
  void abort_busy(Which which, const char* kind) {
    // Aborting changes `open_`.
    std::vector<std::shared_ptr<connection>> chosen;
    for (const auto& [c, at] : open_)
      if (c->busy() && which(*c)) chosen.push_back(c);
    for (const auto& c : chosen) c->abort(kind, "");
  }

  void tick() {
    tick_timer_.expires_after(tick_interval);
    tick_timer_.async_wait([this](boost::beast::error_code ec) {
      if (ec) return;
      const auto now = clock::now();
      if (++ticks_ % ticks_per_progress == 0)
        hooks_.progress(summary_.sent, open_.size() - idle_connections() + backlog_.size());
      for (auto& s : servers_)
        if (!s.ready) retire_idle(s);
      abort_busy([&](const connection& c) { return now - c.intended() > options_.request_timeout; },
                 "timeout");
      if (!sending_ && now > drain_until_) {
        drop_backlog(now);
        abort_busy([](const connection&) { return true; }, "unfinished");
      }
      if (sending_ || !idle()) tick();
    });
  }

  void drop_backlog(clock::time_point now) {
    for (const auto& j : std::exchange(backlog_, {})) {
      outcome o;
      o.error = "unfinished";
      o.message = "never sent";
      o.end = now - j.intended;
      records_.record(j.planned.at, o);
    }
  }

  const load_options& options_;
  plan& plan_;
  recorder& records_;
  const load_hooks& hooks_;
  boost::asio::io_context io_{1};
  boost::asio::steady_timer schedule_timer_{io_};
  boost::asio::steady_timer tick_timer_{io_};
  boost::asio::signal_set signals_{io_, SIGINT, SIGTERM};
  std::deque<server> servers_;  ///< one for each target
  std::size_t turn_ = 0;
  simdjson::dom::parser json_;
  clock::time_point start_;
  clock::time_point drain_until_ = clock::time_point::max();
  std::optional<planned_request> next_;
  std::map<std::shared_ptr<connection>, server*> open_;  ///< all connections, idle ones included
  std::deque<job> backlog_;
  load_summary summary_;
  int paused_ = 0;  ///< loops that wait before they connect again
  int ticks_ = 0;
  bool sending_ = true;
  bool measuring_ = false;
};

}  // namespace

expected<load_summary> run_load(const load_options& options, plan& requests, recorder& records,
                                const load_hooks& hooks) {
  return load{options, requests, records, hooks}.run();
}

}  // namespace troupe::bench
