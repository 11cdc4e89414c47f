#include "actors/launcher/launcher_actor.hpp"

#include "actors/launcher/launcher_state.hpp"
#include "actors/link/guarded.hpp"
#include "actors/supervision/introspection.hpp"
#include "messages/base/exit_codes.hpp"
#include "messages/entry_state.hpp"
#include "messages/job_key.hpp"

#include <caf/all.hpp>

#include <spdlog/spdlog.h>

#include <signal.h>

#include <algorithm>
#include <array>
#include <utility>

namespace troupe::launcher {

launcher_state::~launcher_state() {
  if (!options.office) return;
  options.office->unbind(launcher_name(options.engine), 0);
  if (!child) return;
  // The next incarnation of this launcher knows nothing of the process that ends here.
  child.reset();
  out_of_reach();
  tell_neighbours();
  // Its requests go on elsewhere now, and not when there is another launcher, after its back-off.
  last.state = msg::EntryState::UNKNOWN;
  caf::anon_send(options.directory, directory::set_entry{last});
}

void launcher_state::announce(directory::entry e) {
  e.name = options.engine.name;
  e.generation = generation;
  e.role = role_of(options.role);
  e.pool = options.engine.pool;
  e.model = options.model;
  e.state = state;
  e.slow = slow;
  last = e;
  self->send(options.directory, directory::set_entry{std::move(e)});
}
void launcher_state::announce_state(msg::EntryState s, std::string detail) {
  state = s;
  directory::entry e;
  e.detail = std::move(detail);
  announce(std::move(e));
}

/// Another state of the same incarnation: what the engine told of itself stays.
void launcher_state::announce_last(msg::EntryState s) {
  state = s;
  announce(last);
}

void launcher_state::start() {
  if (stopping) return;
  const auto before = generation;
  ++starts;
  generation = options.next_generation();
  told_to_end = ordered_to_end = broken = served = false;
  last_failure.clear();
  slow.clear();
  loading = {};
  linked = true;
  child_process::options o;
  o.program = options.program;
  o.arguments = {"engine",
                 "--config",
                 options.config_file,
                 "--name",
                 options.engine.name,
                 "--generation",
                 std::to_string(generation),
                 "--node-port",
                 std::to_string(options.node_port),
                 "--secret-fd",
                 "{secret-fd}"};
  o.secret = options.secret;
  o.limits = options.limits;
  if (auto made = options.make_board()) {
    board = *std::move(made);
  } else {
    board.reset();
    spdlog::error("event=no_step_board engine={} reason=\"{}\"", options.engine.name,
                  made.error().message);
  }
  if (board && board->descriptor() >= 0) {
    o.inherited = board->descriptor();
    o.arguments.insert(o.arguments.end(), {"--board-fd", std::to_string(o.inherited)});
  }
  o.on_line = [tag = options.engine.name](std::string line) {
    spdlog::info("engine={} | {}", tag, line);
  };
  o.on_exit = [me = caf::actor_cast<caf::actor>(self), g = generation](exit_status s) {
    caf::anon_send(me, child_ended{g, s});
  };
  auto started = options.start(std::move(o));
  tell_neighbours_again(before);
  if (!started) {
    spdlog::error("event=engine_start_failed engine={} reason=\"{}\"", options.engine.name,
                  started.error().message);
    last_failure = started.error().message;
    return ended(supervision::ending::failed, started.error().message);
  }
  child = *std::move(started);
  spdlog::info("event=engine_started engine={} generation={} pid={}", options.engine.name,
               generation, child ? child->pid() : 0);
  announce_state(msg::EntryState::STARTING, "");
  watch_loading();
}

/// After a back-off, unless something else was arranged since.
void launcher_state::start_at(std::uint64_t number) {
  if (number == starts) start();
}

void launcher_state::end_child(int signal) {
  told_to_end = true;
  child->signal(signal);
  if (signal == SIGKILL) self->delayed_send(self, kill_heeded_max, heeded_atom::value, generation);
}

/// A killed process that stays holds its device and memory, and another cannot be started beside
/// it. Should it end yet, that is an end like others.
void launcher_state::check_end(std::uint64_t g) {
  if (g != generation || !child || state == msg::EntryState::FAILED) return;
  last_failure = "process " + std::to_string(child->pid()) + " cannot be killed: SIGKILL was " +
                 std::to_string(kill_heeded_max.count()) + " ms ago";
  spdlog::error("event=engine_not_killed engine={} reason=\"{}\" hint=\"a driver holds it; look "
                "at the kernel's log\"",
                options.engine.name, last_failure);
  last.detail = last_failure;
  announce_last(msg::EntryState::FAILED);
}

/// Looks again after the timeout whether loading went on.
void launcher_state::watch_loading() {
  self->delayed_send(self, options.load_timeout, loading_atom::value, generation, loading.steps());
}
void launcher_state::check_loading(std::uint64_t g, std::uint64_t seen) {
  if (g != generation || loading.over() || !child) return;
  if (loading.steps() != seen) return watch_loading();
  last_failure = "no progress of loading for " + std::to_string(options.load_timeout.count()) +
                 " ms";
  spdlog::error("event=engine_load_stuck engine={} reason=\"{}\"", options.engine.name,
                last_failure);
  end_child(SIGKILL);
}

void launcher_state::status(const link::origin& from, msg::EngineStatus::Reader in) {
  if (from.from.generation != generation) return;
  // Who tells of loading is another actor than the worker: its last word may come after the first
  // of a worker that is ready, and nobody would say that again.
  if (loading.over() && in.getEntry().getState() == msg::EntryState::LOADING) return;
  auto entry = directory::read(in.getEntry());
  const std::string failure = in.getFailure().getMessage().cStr();
  const bool loaded = loading.over();
  loading.told(entry.state, in.getProgress());
  if (!failure.empty()) last_failure = failure;
  const bool ready = entry.state == msg::EntryState::READY;
  if (drain && ready) entry.state = msg::EntryState::DRAINING;
  const bool news = state != entry.state;
  state = entry.state;
  linked = true;
  if (!loaded && loading.over()) in_reach_regularly(generation);
  if (news && state == msg::EntryState::READY)
    spdlog::info("event=engine_ready engine={} model={} context={} kv_tokens={}",
                 options.engine.name, options.model, entry.context_tokens, entry.kv_tokens);
  if (news && state == msg::EntryState::FAILED)
    spdlog::error("event=engine_failed engine={} reason=\"{}\"", options.engine.name, last_failure);
  if (state == msg::EntryState::FAILED) entry.detail = last_failure;
  if (state == msg::EntryState::DRAINING && drain) entry.detail = drain_detail();
  announce(std::move(entry));
  // It may not have heard of an order, or of its end.
  if (drain && ready) hold();
  if (!drain && ready) serves();
  if (!drain && state == msg::EntryState::DRAINING && !stopping) release();
}

/// Its older incarnations are dead. `address`: of the last one's KV transport; empty: who has met
/// it knows.
msg::envelope<msg::EngineCommand> launcher_state::end_of(const std::string& engine, std::uint64_t g,
                                                         const std::vector<std::uint8_t>& address) {
  msg::draft<msg::EngineCommand> d;
  auto peer = d->initPeerEnded();
  peer.setEngine(engine);
  peer.setGeneration(g);
  peer.setTransferAddress(kj::arrayPtr(address.data(), address.size()));
  return std::move(d).freeze().value();
}

void launcher_state::tell_neighbours() {
  if (last.transfer_address.empty()) return;  // it never had KV to exchange
  tell_neighbours(end_of(options.engine.name, generation, last.transfer_address));
}
void launcher_state::tell_neighbours(const msg::envelope<msg::EngineCommand>& told) {
  for (const auto& name : options.neighbours)
    options.office->send({name, 0}, {launcher_name(options.engine), 0}, told);
}

/// Whoever had no link when that one ended hears of it now, or when its own is back. After the
/// start of the next: what a turn wakes stays with its thread, and a fork takes milliseconds.
void launcher_state::tell_neighbours_again(std::uint64_t ended) {
  if (ended > 0) tell_neighbours(end_of(options.engine.name, ended, {}));
}

/// While it had no link, or its process stood still, it may not have heard of ends of others: their
/// buffers would wait for them.
void launcher_state::tell_of_neighbours() {
  if (!options.view) return;
  const auto all = options.view->get();
  for (const auto& name : options.neighbours)
    if (const auto i = all->find(name); i != all->end() && i->second.generation > 0)
      options.office->send({options.engine.name, generation}, {launcher_name(options.engine), 0},
                           end_of(name, i->second.generation - 1, {}));
}

/// Who was at hand when the engine crashed. Before anybody hears of its end, and by the same
/// links: whoever tries again knows then whether it is suspected. False: nobody was.
bool launcher_state::name_suspects(const exit_status& status) {
  const auto last_words = board ? board->read() : std::nullopt;
  board.reset();
  if (!last_words || !options.view || !is_crash(status, told_to_end || stopping)) return false;
  spdlog::error("event=engine_crashed engine={} generation={} reason=\"{}\" suspects={}",
                options.engine.name, generation, to_string(status), last_words->total);
  msg::draft<msg::CrashSuspects> d{512 + last_words->keys.size() * 40};
  d->setEngine(options.engine.name);
  d->setGeneration(generation);
  d->setSuspects(last_words->total);
  d->setReason(to_string(status));
  auto keys = d->initKeys(static_cast<unsigned>(last_words->keys.size()));
  for (unsigned i = 0; i < keys.size(); ++i) msg::write(keys[i], last_words->keys[i]);
  const auto told = std::move(d).freeze().value();
  const auto all = options.view->get();
  for (const auto& [name, e] : *all)
    if (e.role == msg::Role::REQUESTS)
      options.office->send({name, 0}, {launcher_name(options.engine), 0}, told);
  return last_words->total > 0;
}

/// What crashes engines is found and refused by those who hear of the suspects, after a few deaths
/// at most. If these used up the restarts, some such prompts, or one that is worded anew with each
/// try, would take every engine of a model out of service until a person comes. A broken device
/// crashes over requests as well, but over all that come: its engine, life after life, computes
/// nothing for anybody. One life like that may be a prompt's that was tried alone there.
supervision::ending launcher_state::judge_crash(bool suspected) {
  using supervision::ending;
  if (served) useless_lives = 0;
  if (!suspected || !loading.over()) return ending::failed;
  if (!served && ++useless_lives > options.restarts.intensity) return ending::fatal;
  return ending::excused;
}

void launcher_state::child_gone(const child_ended& x) {
  if (x.generation != generation) return;
  child.reset();
  out_of_reach();
  const bool suspected = name_suspects(x.status);
  tell_neighbours();
  auto how = judge_crash(suspected);
  broken_lives = broken ? broken_lives + 1 : 0;
  if ((!x.status.signalled && is_fatal_exit(x.status.code)) || broken_lives >= broken_lives_max)
    how = supervision::ending::fatal;
  ended(how, last_failure.empty() ? to_string(x.status) : last_failure);
}

void launcher_state::ended(supervision::ending how, const std::string& reason) {
  if (stopping) {
    announce_state(msg::EntryState::STOPPED, "stopped");
    return finish();
  }
  if (ended_by_order()) return;
  spdlog::warn("event=engine_ended engine={} generation={} reason=\"{}\"", options.engine.name,
               generation, reason);
  const auto d = policy->decide(
      0, how, std::chrono::steady_clock::time_point{self->clock().now().time_since_epoch()});
  if (d.what == supervision::decision::kind::restart) {
    announce_state(msg::EntryState::STARTING, "restarting: " + reason);
    self->delayed_send(self, d.delay, start_atom::value, ++starts);
    return;
  }
  announce_state(msg::EntryState::FAILED, reason);
  if (awaited) {
    const error why{"engine_failed", reason};
    tell(*std::exchange(awaited, std::nullopt), msg::DrainPhase::REFUSED, true, &why);
  }
  spdlog::error("event=engine_given_up engine={} reason=\"{}\" hint=\"{}\"", options.engine.name,
                reason,
                how == supervision::ending::fatal
                    ? "starting again cannot help; mend the cause and restart the node"
                    : "it ended too often within health.restart_period");
}

void launcher_state::report(msg::WorkerReport::Reader r) {
  if (r.getGeneration() == generation && options.watchdog)
    if (auto watchdog = options.watchdog())
      self->send(watchdog, health::engine_progress{
                               options.engine.name,
                               generation,
                               {r.getSteps(),
                                r.getTicks(),
                                r.getPrefilledTokens() + r.getSampledTokens(),
                                std::chrono::microseconds{r.getBusyUs()},
                                r.getStepping(),
                                r.getAtHand(),
                                r.getRunning() + r.getQueued(),
                                r.getTransferBytes(),
                                r.getFaults(),
                                r.getStalls(),
                                {r.getPreparing(), r.getUnprepared(), r.getPreparingSign(),
                                 std::chrono::milliseconds{r.getPreparingComputedMs()},
                                 r.getPreparingBytes()},
                                {r.getTransferRounds(), r.getTransferDeviceChanged()},
                                r.getTicksInside()}});
  if (r.getGeneration() != generation) return;
  served = served || r.getPrefilledTokens() + r.getSampledTokens() > 0;
  progress(r);
}

/// The watchdog is not to take its silence for a hang.
void launcher_state::out_of_reach() {
  if (!options.watchdog) return;
  if (auto watchdog = options.watchdog())
    caf::anon_send(watchdog, health::engine_out_of_reach{options.engine.name, generation});
}

/// From now on its silence is one. Nothing else would tell a watchdog that has just begun, or takes
/// the engine for out of reach, of a worker that stands.
void launcher_state::in_reach() {
  if (!options.watchdog || !child || !linked || !loading.over()) return;
  if (auto watchdog = options.watchdog())
    self->send(watchdog, health::engine_in_reach{options.engine.name, generation});
}
void launcher_state::in_reach_regularly(std::uint64_t g) {
  if (g != generation || !child) return;
  in_reach();
  self->delayed_send(self, in_reach_interval, reach_atom::value, g);
}

/// The generation fences: whatever the hung process still says belongs to nobody.
void launcher_state::judged(const health::engine_judged& x) {
  if (x.generation != generation || !child) return;
  broken = x.is.what == health::verdict::broken;
  if (x.is.what != health::verdict::hung && !broken) return judged_alive(x.is);
  last_failure = (broken ? "it is broken: " : "it hung ") + x.is.evidence;
  spdlog::error("event=engine_{} engine={} generation={} evidence=\"{}\"", to_string(x.is.what),
                options.engine.name, generation, x.is.evidence);
  announce_last(msg::EntryState::UNKNOWN);
  end_child(SIGKILL);
}

/// A slow engine keeps what it has; routers prefer others for what is new.
void launcher_state::judged_alive(const health::judgement& is) {
  auto evidence = is.what == health::verdict::slow ? is.evidence : std::string{};
  if (evidence == slow) return;
  slow = std::move(evidence);
  if (slow.empty())
    spdlog::info("event=engine_recovered engine={} generation={}", options.engine.name, generation);
  else
    spdlog::warn("event=engine_slow engine={} generation={} evidence=\"{}\"", options.engine.name,
                 generation, slow);
  announce_last(state);
}

void launcher_state::terminate() {
  if (!child || ordered_to_end) return;
  ordered_to_end = true;
  // SIGTERM also reaches an engine that has no link yet.
  end_child(SIGTERM);
  self->delayed_send(self, stop_within, kill_atom::value, generation);
}

void launcher_state::link_lost(const link::link_down& x) {
  if (x.peer.generation != generation || !child) return;
  linked = false;
  out_of_reach();
  if (stopping && ordered_to_end) return;  // it takes its leave
  spdlog::warn("event=engine_unlinked engine={} reason=\"{}\"", options.engine.name, x.reason);
  self->delayed_send(self, link_loss_grace, unknown_atom::value, generation, ++outages);
  self->delayed_send(self, options.unlinked_max, unlinked_atom::value, generation, outages);
}
void launcher_state::still_unlinked(std::uint64_t g, std::uint64_t outage) {
  if (g == generation && outage == outages && !linked && child)
    announce_last(msg::EntryState::UNKNOWN);
}
void launcher_state::link_back(const link::link_up& x) {
  if (x.peer.generation != generation) return;
  linked = true;
  in_reach();
  tell_of_neighbours();
}
void launcher_state::check_link(std::uint64_t g, std::uint64_t outage) {
  if (g != generation || outage != outages || linked || !child) return;
  last_failure = "no link to its node for " + std::to_string(options.unlinked_max.count()) + " ms";
  spdlog::error("event=engine_cut_off engine={} reason=\"{}\"", options.engine.name, last_failure);
  end_child(SIGKILL);
}

void launcher_state::kill(std::uint64_t g) {
  if (!child || g != generation) return;
  spdlog::warn("event=engine_killed engine={} reason=\"it did not stop in time\"",
               options.engine.name);
  end_child(SIGKILL);
}

supervision::actor_facts launcher_state::facts() const {
  supervision::actor_facts all{{"engine", options.engine.name},
                               {"state", msg::state_name(state)},
                               {"generation", std::to_string(generation)}};
  if (child) all.emplace_back("pid", std::to_string(child->pid()));
  if (!linked) all.emplace_back("link", "lost");
  if (!last.detail.empty()) all.emplace_back("detail", last.detail);
  if (!slow.empty()) all.emplace_back("slow", slow);
  return all;
}

void launcher_state::finish() {
  if (stopper) self->send(stopper, engine_stopped{options.engine.name});
  self->quit();
}

namespace {

caf::behavior behavior(caf::stateful_actor<launcher_state>* self, launcher_options options) {
  auto& s = self->state;
  s.options = std::move(options);
  s.policy = std::make_unique<supervision::restart_policy>(
      supervision::strategy::one_for_one, s.options.restarts,
      std::vector{supervision::restart_kind::permanent}, s.options.seed);
  s.options.office->bind(launcher_name(s.options.engine), 0, caf::actor_cast<caf::actor>(self));
  self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  self->set_default_handler(caf::drop);  // an engine's reports: the watchdog's business
  self->set_exit_handler([self](caf::exit_msg& e) {
    if (e.reason == caf::exit_reason::user_shutdown) return self->state.stop(stop_engine{});
    self->quit(e.reason);
  });
  self->send(s.options.directory,
             directory::watch_engine{s.options.engine.name, caf::actor_cast<caf::actor>(self)});
  if (!s.take_over_order()) self->send(self, start_atom::value, ++s.starts);
  return {
      [self](start_atom, std::uint64_t number) { self->state.start_at(number); },
      [self](const child_ended& x) { self->state.child_gone(x); },
      link::on<msg::EngineStatus>(
          [&s](const link::origin& from, msg::EngineStatus::Reader in) { s.status(from, in); }),
      [self](loading_atom, std::uint64_t generation, std::uint64_t seen) {
        self->state.check_loading(generation, seen);
      },
      link::on<msg::WorkerReport>([&s](msg::WorkerReport::Reader in) { s.report(in); }),
      [self](const link::link_up& x) { self->state.link_back(x); },
      [self](const link::link_down& x) { self->state.link_lost(x); },
      [self](unknown_atom, std::uint64_t generation, std::uint64_t outage) {
        self->state.still_unlinked(generation, outage);
      },
      [self](unlinked_atom, std::uint64_t generation, std::uint64_t outage) {
        self->state.check_link(generation, outage);
      },
      [self](const health::engine_judged& x) { self->state.judged(x); },
      [self](const stop_engine& x) { self->state.stop(x); },
      link::on<msg::DrainOrder>([&s](msg::DrainOrder::Reader in) { s.ordered(in); }),
      [self](drained_atom, std::uint64_t number) { self->state.drain_over(number); },
      [self](kill_atom, std::uint64_t generation) { self->state.kill(generation); },
      [self](heeded_atom, std::uint64_t generation) { self->state.check_end(generation); },
      [self](reach_atom, std::uint64_t generation) { self->state.in_reach_regularly(generation); },
      supervision::answers_for_itself(self, [&s] { return s.facts(); }),
  };
}

}  // namespace

msg::Role role_of(config::pool_role r) {
  switch (r) {
  case config::pool_role::prefill:
    return msg::Role::PREFILL;
  case config::pool_role::decode:
    return msg::Role::DECODE;
  case config::pool_role::both:
    break;
  }
  return msg::Role::BOTH;
}

bool is_crash(const exit_status& s, bool told) {
  if (told) return false;
  if (!s.signalled) return s.code == exit_failure || s.code >= exit_internal;
  static constexpr std::array faults = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};
  return std::find(faults.begin(), faults.end(), s.code) != faults.end();
}

std::string launcher_name(const config::engine_instance& engine) {
  return "launcher/" + engine.pool + "/" + engine.host + "." + std::to_string(engine.index);
}

caf::actor spawn_launcher(caf::actor_system& system, launcher_options options) {
  return system.spawn(behavior, std::move(options));
}

}  // namespace troupe::launcher
