#include "apps/engine/engine_process.hpp"

#include "actors/crash/shared_board.hpp"
#include "actors/launcher/launcher_actor.hpp"
#include "actors/link/system_config.hpp"
#include "actors/router/shard_name.hpp"
#include "actors/supervision/watch.hpp"
#include "actors/workers/offload.hpp"
#include "actors/workers/worker_actor.hpp"
#include "apps/engine/load_engine.hpp"
#include "apps/engine/loading_status.hpp"
#include "apps/engine/node_link.hpp"
#include "apps/node/log.hpp"
#include "apps/node/signals.hpp"
#include "config/parse.hpp"
#include "messages/base/exit_codes.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

namespace troupe::apps {

namespace {

/// Threads that render and tokenise, so that a long prompt does not hold up the next one's start.
constexpr std::size_t tokeniser_threads = 2;
/// What the last messages get to leave the process.
constexpr std::chrono::milliseconds last_words{150};
/// For the link to come up, when there is something to tell before it did.
constexpr std::chrono::milliseconds link_wait{3'000};
constexpr std::chrono::milliseconds link_poll{5};
/// The node's secret is short; more than this is not one.
constexpr std::size_t secret_bytes_max = 4'096;
/// What a loading thread's priority is lowered by, as of nice(1): about a ninth of a share of a
/// busy core.
constexpr int loading_niceness = 10;
/// For the worker actor to give back what it holds, at the end.
constexpr std::chrono::milliseconds worker_end{1'000};

int fail(int code, const std::string& message) {
  std::fprintf(stderr, "troupe engine: %s\n", message.c_str());
  return code;
}

std::vector<std::uint8_t> read_secret(int fd) {
  std::vector<std::uint8_t> secret(secret_bytes_max);
  std::size_t have = 0;
  while (have < secret.size()) {
    const auto n = ::read(fd, secret.data() + have, secret.size() - have);
    if (n <= 0) break;
    have += static_cast<std::size_t>(n);
  }
  ::close(fd);
  secret.resize(have);
  return secret;
}

/// Errors that another start cannot mend: the model's, or the machine's.
bool is_models_fault(const std::string& code) {
  static const std::vector<std::string> codes = {
      "model_missing",    "model_corrupt",  "model_unsupported", "template_unknown",
      "context_too_long", "too_many_slots", "unknown_fault",     "device_missing",
      "wrong_hardware",   "bad_costs"};
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

/// One engine from its loading to its end.
class engine_process {
 public:
  engine_process(const engine_process_options& options, const config::cluster& cluster,
                 const config::engine_instance& instance)
      : options_(options), cluster_(cluster), pool_(*cluster.find_pool(instance.pool)),
        here_(*cluster.find_host(instance.host)), launcher_(launcher::launcher_name(instance)) {
    self_.name = instance.name;
    self_.generation = options.generation;
    self_.role = launcher::role_of(pool_.role);
    self_.pool = pool_.name;
    self_.model = pool_.model;
    self_.host = here_.name;
    self_.slots = pool_.slots;
    open_board();
  }

  int run(std::vector<std::uint8_t> secret) {
    link::system_config config{cluster_.health.heartbeat_interval,
                               cluster_.health.heartbeat_timeout};
    caf::actor_system system{config};
    system.await_actors_before_shutdown(false);
    auto office = std::make_shared<link::post_office>();
    auto loading = std::make_shared<loading_status>(system, office, self_, launcher_);
    const auto link = connect(system, office, loading, std::move(secret));
    const auto watching = watch(system, "the link's owner", link->owner());
    const int code = work(system, office, std::move(loading));
    ending_ = true;
    return code;
  }

 private:
  int work(caf::actor_system& system, std::shared_ptr<link::post_office> office,
           std::shared_ptr<loading_status> loading) {
    auto loaded = load([&](float done) {
      loading->set_progress(done);
      stopping_ = stopping_ ||
                  signals_.wait(std::chrono::milliseconds{0}) == stop_signals::cause::signal;
      return !over();
    });
    if (stopping_) return exit_ok;
    if (!loaded) return give_up(*loading, loaded.error());
    std::shared_ptr<transfer::hand_over_service> hand_over;
    if (pool_.role != config::pool_role::both ||
        (config::has_others_like(cluster_, pool_) && loaded->engine->info().ranges)) {
      auto started = start_hand_overs(cluster_, here_, loaded->engine->info());
      if (!started) return give_up(*loading, started.error());
      hand_over = *std::move(started);
      self_.transfer_kind = hand_over->transport_name();
      const auto address = hand_over->local_address();
      self_.transfer_address.assign(
          reinterpret_cast<const std::uint8_t*>(address.data()),
          reinterpret_cast<const std::uint8_t*>(address.data() + address.size()));
    }
    self_.kv_tokens = loaded->kv_tokens;
    self_.kv_bytes_per_token = loaded->engine->info().kv_bytes_per_token;
    self_.device_class = loaded->engine->info().device_class;
    self_.prefill_speed = static_cast<float>(loaded->speed.prefill);
    self_.decode_speed = static_cast<float>(loaded->speed.decode);
    self_.context_tokens = std::min(loaded->engine->info().context_tokens, loaded->kv_tokens);
    return serve(system, std::move(office), *std::move(loaded), std::move(hand_over),
                 std::move(loading));
  }

  void open_board() {
    if (options_.board_fd < 0) return;
    auto opened = crash::open_shared_board(options_.board_fd);
    if (opened) {
      board_ = *std::move(opened);
      crash::name_faulting_thread(board_);
    } else  // it can serve without; only nobody would be named should it crash
      spdlog::error("event=no_step_board reason=\"{}\"", opened.error().message);
  }

  /// On a thread of its own, whose priority is low: an engine that comes back must not slow those
  /// of its host that serve. A thread's priority can be lowered by anyone, but not raised again.
  expected<loaded_engine> load(const std::function<bool(float)>& progress) {
    expected<loaded_engine> result = error{};
    std::thread{[&] {
      ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), loading_niceness);
      result = load_engine(cluster_, pool_, progress);
    }}.join();
    return result;
  }

  /// Nobody in this process restarts these actors; its launcher restarts the whole.
  caf::actor watch(caf::actor_system& system, const std::string& name, const caf::actor& what) {
    return supervision::spawn_watch(system, {{name, what}}, [this](const std::string& why) {
      if (!ending_) fail_with(exit_internal, "actor_lost", why);
    });
  }

  /// Ends the process with the code of the first failure. Any thread.
  void fail_with(int code, const char* event, const std::string& why) {
    spdlog::error("event={} reason=\"{}\"", event, why);
    int none = exit_ok;
    failure_.compare_exchange_strong(none, code);
    signals_.wake();
  }
  bool over() const { return stopping_ || failure_ != exit_ok; }

  std::unique_ptr<node_link> connect(caf::actor_system& system,
                                     std::shared_ptr<link::post_office> office,
                                     std::weak_ptr<loading_status> loading,
                                     std::vector<std::uint8_t> secret) {
    node_link::options o;
    o.cluster_id = cluster_.section.id;
    o.engine = self_.name;
    o.generation = options_.generation;
    o.host = here_.name;
    o.port = options_.node_port;
    o.secret = std::move(secret);
    o.health = cluster_.health;
    o.news.office = std::move(office);
    o.news.on_up = [this, loading] {
      linked_ = true;
      std::lock_guard lock{worker_mutex_};
      if (worker_)
        caf::anon_send(worker_, workers::announce_again{});
      else if (auto l = loading.lock())
        l->tell();
    };
    o.news.on_gone = [this](const std::string& why) { fail_with(exit_refused, "node_gone", why); };
    return std::make_unique<node_link>(system, std::move(o));
  }

  int give_up(loading_status& loading, const error& why) {
    spdlog::error("event=engine_load_failed code={} reason=\"{}\"", why.code, why.message);
    loading.fail(why);
    // A missing model is found sooner than the node: what it is told then is said again once it is
    // there.
    const auto until = std::chrono::steady_clock::now() + link_wait;
    while (!linked_ && !over() && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(link_poll);
    std::this_thread::sleep_for(last_words);
    if (const int lost = failure_; lost != exit_ok) return lost;
    return is_models_fault(why.code) ? exit_model : exit_internal;
  }

  int serve(caf::actor_system& system, std::shared_ptr<link::post_office> office,
            loaded_engine loaded, std::shared_ptr<transfer::hand_over_service> hand_over,
            std::shared_ptr<loading_status> loading) {
    workers::offload_pool tokenisers{tokeniser_threads};
    workers::engine_host::options h;
    h.worker = self_.name;
    h.generation = self_.generation;
    h.office = office;
    h.hand_over = hand_over;
    h.board = board_;
    h.batch_interval = workers::batch_interval;
    auto host = std::make_shared<workers::engine_host>(std::move(loaded.engine), std::move(h));
    workers::worker_options w;
    w.self = self_;
    w.launcher = launcher_;
    w.shards = router::shard_names(cluster_.routers.size());
    w.report_interval = cluster_.health.report_interval;
    w.stall.still_max = cluster_.health.hang_timeout;
    w.office = office;
    w.host = host;
    w.text = loaded.text;
    w.hand_over = hand_over;
    w.preparing = [&tokenisers] { return tokenisers.account(); };
    w.tokenisers = health::tokeniser_limits_of(cluster_.health.hang_timeout,
                                               2 * workers::idle_watch_interval);
    w.offload = [&tokenisers](std::function<void()> task) {
      return tokenisers.post(std::move(task));
    };
    w.on_stopped = [this] {
      stopping_ = true;
      signals_.wake();
    };
    caf::actor worker;
    {
      std::lock_guard lock{worker_mutex_};
      worker = worker_ = workers::spawn_worker(system, std::move(w));
    }
    const auto watching = watch(system, "the worker", worker);
    loading.reset();
    spdlog::info("event=engine_ready name={} model={} transfer={} pid={}", self_.name, self_.model,
                 self_.transfer_kind, ::getpid());
    while (!over()) {
      if (signals_.wait() == stop_signals::cause::signal)
        caf::anon_send(worker, workers::stop_worker{});
    }
    ending_ = true;
    spdlog::info("event=engine_stopping name={}", self_.name);
    std::this_thread::sleep_for(last_words);
    {
      std::lock_guard lock{worker_mutex_};
      worker_ = nullptr;
    }
    {
      caf::scoped_actor me{system};
      me->monitor(worker);
      me->send_exit(worker, caf::exit_reason::user_shutdown);
      me->receive([](const caf::down_msg&) {}, caf::after(worker_end) >> [] {});
    }
    host->stop();
    return stopping_ ? static_cast<int>(exit_ok) : failure_.load();
  }

  const engine_process_options& options_;
  const config::cluster& cluster_;
  const config::pool& pool_;
  const config::host& here_;
  std::string launcher_;
  directory::entry self_;
  stop_signals signals_;  // before any thread
  std::atomic<bool> stopping_{false};
  std::atomic<bool> ending_{false};  ///< from here on, ends of actors are in order
  std::atomic<int> failure_{exit_ok};
  std::atomic<bool> linked_{false};
  std::shared_ptr<crash::step_board> board_;  ///< null: none
  std::mutex worker_mutex_;
  caf::actor worker_;
};

}  // namespace

int run_engine(const engine_process_options& options) {
  auto secret = read_secret(options.secret_fd);
  auto loaded = config::load(options.config_file);
  if (!loaded) {
    for (const auto& p : loaded.problems) std::fprintf(stderr, "%s\n", to_string(p).c_str());
    return fail(exit_config, "the cluster file has problems");
  }
  const auto& cluster = *loaded.value;
  for (const auto& h : cluster.hosts)
    for (const auto& instance : config::engines_on(cluster, h.name))
      if (instance.name == options.name) {
        // Time and name are added by the node, whose log this becomes.
        set_up_log(options.log_level, "%l %v");
        engine_process process{options, cluster, instance};
        return process.run(std::move(secret));
      }
  return fail(exit_config, fmt::format("{} has no engine '{}'", options.config_file, options.name));
}

}  // namespace troupe::apps
