#include "apps/bench/load.hpp"

#include "apps/bench/connection.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include <fmt/format.h>

#include <csignal>
#include <deque>
#include <set>
#include <utility>
#include <vector>

namespace troupe::bench {

namespace {

using namespace std::chrono_literals;

constexpr auto tick_interval = 50ms;
constexpr int ticks_per_progress = 20;
constexpr auto connect_pause = 100ms;

class load : public connection_owner {
 public:
  load(const load_options& options, plan& requests, recorder& records, const load_hooks& hooks)
      : options_(options), plan_(requests), records_(records), hooks_(hooks) {}

  expected<load_summary> run() {
    boost::beast::error_code failure;
    addresses_ = tcp::resolver{io_}.resolve(options_.target.host, options_.target.port, failure);
    if (failure)
      return error{"connect_failed",
                   fmt::format("{}: {}", options_.target.authority(), failure.message())};
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
    send(c ? std::move(c) : open(), make_job(*std::move(planned)));
  }

  /// Closed loop: nobody listens; without a pause the loop would do nothing but connect.
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
    if (!idle_.empty()) {
      auto c = std::move(idle_.back());
      idle_.pop_back();
      send(std::move(c), std::move(j));
    } else if (open_.size() < options_.connections_max) {
      send(open(), std::move(j));
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
    j.message = {http::verb::post, options_.target.base_path + options_.path, 11};
    j.message.set(http::field::host, options_.target.authority());
    j.message.set(http::field::content_type, "application/json");
    for (const auto& [name, value] : options_.target.headers) j.message.set(name, value);
    j.message.body() = hooks_.body(planned);
    j.message.prepare_payload();
    j.planned = std::move(planned);
    return j;
  }

  std::shared_ptr<connection> open() {
    ++summary_.connections;
    auto c = std::make_shared<connection>(io_, addresses_, json_, *this);
    open_.insert(c);
    return c;
  }

  void send(std::shared_ptr<connection> c, job j) {
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
    if (c->closed()) open_.erase(c);
    if (options_.closed_loop > 0) {
      if (o.error == "connect_failed") return pause_loop();
      send_next_of_loop(c->closed() ? nullptr : c);
    } else if (!backlog_.empty()) {
      auto waiting = std::move(backlog_.front());
      backlog_.pop_front();
      send(c->closed() ? open() : c, std::move(waiting));
    } else if (!c->closed()) {
      idle_.push_back(c);
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

  void end_sending() {
    if (sending_) drain_until_ = clock::now() + options_.drain_timeout;
    sending_ = false;
    stop_when_done();
  }

  bool idle() const { return backlog_.empty() && open_.size() == idle_.size() && paused_ == 0; }

  void stop_when_done() {
    if (sending_ || !idle()) return;
    for (const auto& c : std::exchange(idle_, {})) retire(c);
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
    for (const auto& c : open_)
      if (c->busy() && which(*c)) chosen.push_back(c);
    for (const auto& c : chosen) c->abort(kind, "");
  }

  void tick() {
    tick_timer_.expires_after(tick_interval);
    tick_timer_.async_wait([this](boost::beast::error_code ec) {
      if (ec) return;
      const auto now = clock::now();
      if (++ticks_ % ticks_per_progress == 0)
        hooks_.progress(summary_.sent, open_.size() - idle_.size() + backlog_.size());
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
  tcp::resolver::results_type addresses_;
  simdjson::dom::parser json_;
  clock::time_point start_;
  clock::time_point drain_until_ = clock::time_point::max();
  std::optional<planned_request> next_;
  std::set<std::shared_ptr<connection>> open_;  ///< all connections, `idle_` included
  std::vector<std::shared_ptr<connection>> idle_;
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
