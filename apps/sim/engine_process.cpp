#include "apps/sim/engine_process.hpp"

#include "actors/crash/shared_board.hpp"
#include "actors/launcher/launcher_actor.hpp"
#include "actors/router/shard_name.hpp"
#include "actors/supervision/watch.hpp"
#include "gpu/engine/make_engine.hpp"
#include "gpu/text/byte_text_model.hpp"
#include "messages/base/exit_codes.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace troupe::sim {

namespace {

using namespace std::chrono_literals;

/// Loading tells its progress so often.
constexpr int load_steps = 4;
/// From the last word of an orderly end to the end.
constexpr auto last_words = 150ms;
/// For a tokeniser thread to take a prompt up.
constexpr auto tokeniser_delay_max = 500us;

/// Inside a pass aborts are heard this often: passes of busy engines are most of what there is to
/// run.
constexpr auto pass_slice = 4ms;
/// The engine's books are looked at between two steps, each time after so many.
constexpr std::uint64_t audit_interval_steps = 16;

const std::string& value_of(const launcher::child_process::options& o, const std::string& name) {
  auto i = std::find(o.arguments.begin(), o.arguments.end(), name);
  if (i == o.arguments.end() || i + 1 == o.arguments.end())
    throw std::logic_error("an engine is started without " + name);
  return *(i + 1);
}

}  // namespace

/// The board that the launcher reads, and by the way what stands on it now.
class watched_board final : public crash::step_board {
 public:
  explicit watched_board(std::shared_ptr<crash::step_board> board) : board_(std::move(board)) {}
  void at_hand(std::span<const crash::job_key> keys) override {
    jobs_ = keys.size();
    board_->at_hand(keys);
  }
  void preparing(const crash::job_key& key) override { board_->preparing(key); }
  void prepared(const crash::job_key& key) override { board_->prepared(key); }
  std::size_t jobs() const { return jobs_; }

 private:
  std::shared_ptr<crash::step_board> board_;
  std::size_t jobs_ = 0;
};

engine_process::engine_process(surroundings world, launcher::child_process::options how)
    : world_(std::move(world)), how_(std::move(how)) {
  self_.name = value_of(how_, "--name");
  self_.generation = std::stoull(value_of(how_, "--generation"));
  for (const auto& h : world_.cluster->hosts)
    for (const auto& instance : config::engines_on(*world_.cluster, h.name)) {
      if (instance.name != self_.name) continue;
      pool_ = world_.cluster->find_pool(instance.pool);
      launcher_ = launcher::launcher_name(instance);
      self_.host = h.name;
    }
  self_.role = launcher::role_of(pool_->role);
  self_.pool = pool_->name;
  self_.model = pool_->model;
  self_.slots = pool_->slots;
  process_ = world_.when->add_process(self_.name + "#" + std::to_string(self_.generation % 1'000));
  world_.net->place(process_, self_.host);
  world_.when->within(process_, [&] {
    auto& system = world_.when->system();
    loading_ = std::make_shared<apps::loading_status>(system, office_, self_, launcher_);
    apps::node_link::options o;
    o.cluster_id = world_.cluster->section.id;
    o.engine = self_.name;
    o.generation = self_.generation;
    o.host = self_.host;
    o.port = static_cast<std::uint16_t>(std::stoul(value_of(how_, "--node-port")));
    o.secret = how_.secret;
    o.health = world_.cluster->health;
    o.news.office = office_;
    o.news.on_up = [this] {
      if (worker_)
        caf::anon_send(worker_, workers::announce_again{});
      else if (loading_)
        loading_->tell();
    };
    o.news.on_gone = [this](const std::string&) { exit({false, exit_refused}); };
    o.dialler = world_.net->spawn_dialler(process_);
    link_ = std::make_unique<apps::node_link>(system, std::move(o));
    watching_ = supervision::spawn_watch(system, {{"the link's owner", link_->owner()}},
                                         [this](const std::string&) {
                                           exit({false, exit_internal});
                                         });
  });
  load(0);
}

engine_process::~engine_process() = default;

bool engine_process::at_work() const { return board_ && board_->jobs() > 0; }

void engine_process::load(int steps_done) {
  const auto step = world_.random->between(world_.pace.load_min, world_.pace.load_max) / load_steps;
  world_.when->after(step, process_, [this, steps_done] {
    if (mood_.never_loads) return;
    loading_->set_progress(static_cast<float>(steps_done + 1) / (load_steps + 1));
    if (steps_done + 1 < load_steps)
      load(steps_done + 1);
    else
      serve();
  });
}

void engine_process::serve() {
  const auto& model = *world_.cluster->find_model(pool_->model);
  const auto text = text::make_byte_text_model(model.context_tokens);
  const auto clock = [when = world_.when] { return when->now(); };
  engine::simulated_options o;
  o.model = model.name;
  o.context_tokens = model.context_tokens;
  o.slots = static_cast<engine::slot_id>(pool_->slots + pool_->cached_prefixes + 8);
  o.cells = pool_->kv_tokens + engine::probe_cells_needed;
  o.vocabulary = text->vocabulary();
  o.end_tokens = {text::byte_token_turn_end, text::byte_token_end};
  o.prefill_tokens_per_second = world_.pace.prefill_tokens_per_second;
  o.decode_step_us = world_.pace.decode_step_us;
  o.decode_us_per_stream = world_.pace.decode_us_per_stream;
  o.slice = pass_slice;
  o.now = [this] { return pass_time_; };
  o.sleep = [this](std::chrono::nanoseconds time) { sleep(time); };
  o.choose_fault = [this] {
    return std::exchange(mood_.garbage, false) ? engine::simulated_fault::garbage
                                               : engine::simulated_fault::none;
  };
  engine::batching_limits limits;
  limits.slots = pool_->slots;
  limits.kv_tokens = pool_->kv_tokens;
  limits.step_tokens = pool_->step_tokens;
  limits.cached_prefixes = pool_->cached_prefixes;
  limits.prefix_reuse = pool_->prefix_reuse;
  limits.probe_cells = engine::probe_cells_needed;
  engine::engine_options options;
  options.piece_bytes_max = world_.cluster->transfer.piece_bytes_max;
  options.now = clock;
  auto engine = engine::make_batching_engine(std::make_unique<engine::simulated_runner>(o), text,
                                             limits, options);
  if (pool_->role != config::pool_role::both ||
      (config::has_others_like(*world_.cluster, *pool_) && engine->info().ranges)) {
    transfer::hand_over_service::options t;
    t.layout = engine->info().kv_layout;
    t.piece_bytes = world_.cluster->transfer.piece_bytes_max;
    t.buffers = std::max<std::size_t>(2, world_.cluster->transfer.buffer_bytes /
                                             world_.cluster->transfer.piece_bytes_max);
    t.timeout = world_.cluster->health.transfer_timeout;
    t.now = clock;
    auto started = transfer::hand_over_service::start(
        t, [&](transfer::events& sink) -> expected<std::unique_ptr<transfer::backend>> {
          return world_.kv->join(process_, sink);
        });
    if (!started) throw std::logic_error(started.error().message);
    hand_over_ = *std::move(started);
    self_.transfer_kind = hand_over_->transport_name();
    const auto address = hand_over_->local_address();
    self_.transfer_address.assign(
        reinterpret_cast<const std::uint8_t*>(address.data()),
        reinterpret_cast<const std::uint8_t*>(address.data() + address.size()));
  }
  self_.kv_tokens = limits.kv_tokens;
  self_.kv_bytes_per_token = engine->info().kv_bytes_per_token;
  self_.context_tokens = std::min(engine->info().context_tokens, limits.kv_tokens);
  workers::engine_host::options h;
  h.worker = self_.name;
  h.generation = self_.generation;
  h.office = office_;
  h.hand_over = hand_over_;
  h.own_thread = false;
  h.batch_interval = workers::batch_interval;
  h.now = clock;
  // The memory is shared as with a real child; the descriptor would be the child's own.
  if (how_.inherited >= 0) {
    auto board = crash::open_shared_board(::dup(how_.inherited));
    if (!board) throw std::logic_error(board.error().message);
    h.board = board_ = std::make_shared<watched_board>(*std::move(board));
  }
  host_ = std::make_shared<workers::engine_host>(std::move(engine), std::move(h));
  workers::worker_options w;
  w.self = self_;
  w.launcher = launcher_;
  w.shards = router::shard_names(world_.cluster->routers.size());
  w.report_interval = world_.cluster->health.report_interval;
  w.stall.still_max = world_.cluster->health.hang_timeout;
  w.office = office_;
  w.host = host_;
  w.text = text;
  w.hand_over = hand_over_;
  w.offload = [this](std::function<void()> task) {
    world_.when->after(world_.random->between(0us, tokeniser_delay_max), process_, std::move(task));
    return true;
  };
  w.on_stopped = [this] {
    stopping_ = true;
    world_.when->after(last_words, process_, [this] { exit({false, exit_ok}); });
  };
  worker_ = workers::spawn_worker(world_.when->system(), std::move(w));
  watching_ = supervision::spawn_watch(
      world_.when->system(), {{"the link's owner", link_->owner()}, {"the worker", worker_}},
      [this](const std::string&) {
        exit({false, exit_internal});
      });
  loading_.reset();
  thread_ = std::make_unique<fiber>([this] { run_engine(); });
  world_.when->on_activity(process_, [this] { wake(); });
  wake();
}

// -- the engine's thread -------------------------------------------------------------

void engine_process::run_engine() {
  for (;;) {
    woken_ = false;
    const bool worked = host_->step();
    if (worked && ++steps_ % audit_interval_steps == 0) audit();
    if (!worked && !woken_) {
      idle_ = true;
      fiber::suspend();
    } else {
      resume_soon();  // others may run between two steps
      fiber::suspend();
    }
  }
}

/// KV that is freed while somebody counts on it may be made good by what comes later: it has to be
/// seen in between.
void engine_process::audit() {
  auto found = host_->engine().audit().mismatches;
  if (mismatches_.empty()) mismatches_ = std::move(found);
}

void engine_process::resume_soon() {
  world_.when->soon(process_, [this] {
    thread_->resume();
    own_turn_ = true;
  });
}

/// Something has happened in this process: there may be work.
void engine_process::wake() {
  if (std::exchange(own_turn_, false)) return;
  woken_ = true;
  if (std::exchange(idle_, false)) resume_soon();
}

/// In a forward pass.
void engine_process::sleep(std::chrono::nanoseconds time) {
  if (mood_.crash) {
    exit({true, SIGABRT});
    fiber::suspend();  // never comes back
  }
  if (mood_.hang) {
    hanging_ = true;
    for (;;) fiber::suspend();  // nobody resumes it
  }
  pass_time_ += time;
  const auto real = std::chrono::nanoseconds{
      static_cast<std::int64_t>(static_cast<double>(time.count()) * mood_.slowness)};
  world_.when->after(real, process_, [this] {
    thread_->resume();
    own_turn_ = true;
  });
  fiber::suspend();
}

// -- its end -------------------------------------------------------------------------

void engine_process::signal(int number) {
  if (number == SIGKILL) {
    if (on_killed_by_launcher && !ended_) on_killed_by_launcher(*this);
    return exit({true, SIGKILL});
  }
  if (number != SIGTERM) return;
  stopping_ = true;
  world_.when->soon(process_, [this] {
    if (worker_)
      caf::anon_send(worker_, workers::stop_worker{});
    else
      exit({false, exit_ok});
  });
}

void engine_process::exit(launcher::exit_status how) {
  if (std::exchange(ended_, true)) return;
  world_.when->after_this([this, how] {
    if (!alive()) return;
    world_.ended(*this, how);
    if (how_.on_exit)
      world_.when->after(world_.random->between(1ms, 3ms), world_.node,
                         [tell = how_.on_exit, how] { tell(how); });
  });
}

child::~child() {
  // Its launcher is gone, or has seen its end.
  process_->exit({true, SIGKILL});
}

}  // namespace troupe::sim
