// Taking an engine out of service and back, by order of an operator or at its node's end.

#include "actors/launcher/launcher_state.hpp"

#include <caf/all.hpp>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace troupe::launcher {

namespace {

/// What an engine gets, after the time for its jobs, to end them and to say that it is idle.
constexpr std::chrono::milliseconds last_jobs_grace{2'000};

std::uint32_t left_ms(caf::actor_clock::time_point until, caf::actor_clock::time_point now) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - now).count();
  return static_cast<std::uint32_t>(std::max<std::int64_t>(0, left));
}

}  // namespace

// -- orders ------------------------------------------------------------------------------

bool launcher_state::take_over_order() {
  const auto order = *options.standing;
  if (order == standing_order::none) return false;
  const auto now = self->clock().now();
  const bool stop = order == standing_order::stop;
  drain = drain_order{{}, now, now, stop ? msg::DrainEnd::STOP : msg::DrainEnd::KEEP, true};
  if (!stop) return false;
  generation = options.next_generation();
  announce_state(msg::EntryState::STOPPED, "drained and stopped");
  return true;
}

void launcher_state::ordered(msg::DrainOrder::Reader in) {
  const asker by{in.getId(), in.getReplyTo().cStr()};
  if (stopping) {
    const error why{"node_stopping", "the node of " + options.engine.name + " is stopping"};
    return tell(by, msg::DrainPhase::REFUSED, true, &why);
  }
  replaced({"replaced", "another order took its place"});
  if (in.isUndrain()) return undrain(by);
  const auto order = in.getDrain();
  const auto then = order.getThen();
  *options.standing = then == msg::DrainEnd::KEEP   ? standing_order::keep
                      : then == msg::DrainEnd::STOP ? standing_order::stop
                                                    : standing_order::none;
  const auto now = self->clock().now();
  begin_drain({by, now + std::chrono::milliseconds{order.getWithinMs()},
               now + std::chrono::milliseconds{order.getMoveAfterMs()}, then});
}

/// Whoever waits for an order that something else takes the place of would hear of it no more.
void launcher_state::replaced(const error& why) {
  if (drain) tell(std::exchange(drain->by, {}), msg::DrainPhase::REFUSED, true, &why);
  if (awaited) tell(*std::exchange(awaited, std::nullopt), msg::DrainPhase::REFUSED, true, &why);
}

/// What it is until it says itself that it serves: after a stop it loads first, for minutes maybe.
msg::DrainPhase launcher_state::phase_until_it_serves() const {
  if (!child || ordered_to_end) return msg::DrainPhase::RESTARTING;
  if (state == msg::EntryState::READY) return msg::DrainPhase::SERVING;
  return state == msg::EntryState::DRAINING ? msg::DrainPhase::DRAINING
                                            : msg::DrainPhase::RESTARTING;
}

void launcher_state::undrain(const asker& by) {
  spdlog::info("event=engine_undrained engine={}", options.engine.name);
  drain.reset();
  *options.standing = standing_order::none;
  ++drains;
  awaited = by;
  tell(by, phase_until_it_serves(), false);
  if (!child) return start();
  if (!ordered_to_end) release();
}

/// The node's end: as an order, and the launcher ends with its engine.
void launcher_state::stop(const stop_engine& x) {
  if (stopping && ordered_to_end) return;
  stopping = true;
  stopper = x.reply_to;
  replaced({"node_stopping", "the node of " + options.engine.name + " is stopping"});
  if (!child) {
    announce_state(msg::EntryState::STOPPED, "stopped");
    return finish();
  }
  stop_within = x.within;
  if (x.drain.count() <= 0 || !may_hold_jobs()) return terminate();
  const auto now = self->clock().now();
  // Whoever else takes the streams has more time for them.
  begin_drain({{}, now + x.drain, now, msg::DrainEnd::STOP});
}

// -- an order's course ---------------------------------------------------------------------

bool launcher_state::may_hold_jobs() const {
  return child && !ordered_to_end &&
         (state == msg::EntryState::READY ||
          (state == msg::EntryState::DRAINING && !(drain && drain->drained)));
}

void launcher_state::begin_drain(drain_order order) {
  const bool busy = may_hold_jobs();
  spdlog::info("event=engine_draining engine={} within_ms={}", options.engine.name,
               left_ms(order.until, self->clock().now()));
  drain = std::move(order);
  ++drains;
  tell(drain->by, msg::DrainPhase::DRAINING, false);
  if (!busy) return drained();
  state = msg::EntryState::DRAINING;
  announce_draining();
  hold();
  self->delayed_send(self, drain->until - self->clock().now() + last_jobs_grace,
                     drained_atom::value, drains);
}

/// Tells the engine. The times are what is left of them: it may have to be told again.
void launcher_state::hold() {
  const auto now = self->clock().now();
  msg::draft<msg::EngineCommand> d;
  auto h = d->initHold();
  h.setWithinMs(left_ms(drain->until, now));
  h.setMoveAfterMs(left_ms(drain->move_at, now));
  h.setNumber(drains);
  command(std::move(d));
}

/// It answers with its own word "ready", which ends the drain for all.
void launcher_state::release() {
  msg::draft<msg::EngineCommand> d;
  d->setRelease();
  command(std::move(d));
}

/// The engine's own account while an order is in force. One that has not heard of the order yet may
/// have been idle, and been given a job since.
void launcher_state::progress(msg::WorkerReport::Reader r) {
  if (!drain || drain->drained || state != msg::EntryState::DRAINING) return;
  const auto jobs = r.getJobs();
  const bool news = std::exchange(drain->jobs_left, jobs) != jobs;
  if (r.getIdle() && r.getHold() == drains) return drained();
  if (!news) return;
  announce_draining();
  tell(drain->by, msg::DrainPhase::DRAINING, false);
}

/// An engine that is told to end need not have become idle; one that is kept has to.
void launcher_state::drain_over(std::uint64_t number) {
  if (number == drains && drain && !drain->drained && drain->then != msg::DrainEnd::KEEP) drained();
}

void launcher_state::drained() {
  drain->drained = true;
  drain->jobs_left = 0;
  if (drain->then == msg::DrainEnd::KEEP) {
    if (state == msg::EntryState::DRAINING) announce_draining();
    return tell(std::exchange(drain->by, {}), msg::DrainPhase::DRAINED, true);
  }
  tell(drain->by, msg::DrainPhase::DRAINED, false);
  if (child) return terminate();
  (void)ended_by_order();
}

/// The process is gone, as somebody wanted. False: nobody did.
bool launcher_state::ended_by_order() {
  const bool asked = std::exchange(ordered_to_end, false);
  if (!drain || drain->then == msg::DrainEnd::KEEP) {
    if (drain && !drain->drained) drained();  // what ran in it goes on elsewhere
    if (!asked) return false;
    start();
    return true;
  }
  ++starts;  // a start after a back-off is void
  if (drain->then == msg::DrainEnd::STOP) {
    drain->drained = true;
    announce_state(msg::EntryState::STOPPED, "drained and stopped");
    tell(std::exchange(drain->by, {}), msg::DrainPhase::STOPPED, true);
    return true;
  }
  awaited = drain->by;
  drain.reset();
  tell(*awaited, msg::DrainPhase::RESTARTING, false);
  start();
  return true;
}

void launcher_state::serves() {
  if (awaited) tell(*std::exchange(awaited, std::nullopt), msg::DrainPhase::SERVING, true);
}

// -- what others are told ---------------------------------------------------------------

std::string launcher_state::drain_detail() const {
  if (drain->drained) return "drained";
  return fmt::format("draining, {} job{} left", drain->jobs_left, drain->jobs_left == 1 ? "" : "s");
}

void launcher_state::announce_draining() {
  last.detail = drain_detail();
  announce_last(msg::EntryState::DRAINING);
}

void launcher_state::tell(const asker& by, msg::DrainPhase phase, bool over, const error* why) {
  if (by.reply_to.empty()) return;
  msg::draft<msg::DrainStatus> d;
  d->setId(by.id);
  d->setEngine(options.engine.name);
  d->setGeneration(generation);
  d->setPhase(phase);
  d->setJobsLeft(drain ? drain->jobs_left : 0);
  d->setOver(over);
  if (why) {
    auto f = d->initFailure();
    f.setCode(why->code);
    f.setMessage(why->message);
  }
  options.office->send({by.reply_to, 0}, {launcher_name(options.engine), 0},
                       std::move(d).freeze().value());
}

void launcher_state::command(msg::draft<msg::EngineCommand>&& d) {
  options.office->send({options.engine.name, generation}, {launcher_name(options.engine), 0},
                       std::move(d).freeze().value());
}

}  // namespace troupe::launcher
