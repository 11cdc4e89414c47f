#include "actors/workers/worker_actor.hpp"

#include "actors/link/guarded.hpp"
#include "actors/workers/worker_state.hpp"

#include <caf/all.hpp>

namespace troupe::workers {

namespace {

caf::behavior behavior(caf::stateful_actor<worker_state>* self, worker_options options) {
  auto& s = self->state;
  s.options = std::move(options);
  s.options.self.state = msg::EntryState::READY;
  s.tokenisers = health::tokeniser_watch{s.options.tokenisers};
  s.options.office->bind(s.options.self.name, s.options.self.generation,
                         caf::actor_cast<caf::actor>(self));
  self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  self->set_default_handler(caf::drop);
  s.options.host->start(caf::actor_cast<caf::actor>(self));
  s.announce();
  self->send(self, report_atom::value);
  s.watch_soon();
  using link::on;
  return {
      on<msg::PrefillJob>(
          [&s](msg::PrefillJob::Reader in) { s.about(in.getJob(), [&] { s.take_prefill(in); }); }),
      on<msg::DecodeJob>(
          [&s](msg::DecodeJob::Reader in) { s.about(in.getJob(), [&] { s.take_decode(in); }); }),
      on<msg::MoveJob>(
          [&s](const link::origin& from, msg::MoveJob::Reader in) { s.move(from, in); }),
      on<msg::PromptPart>([&s](msg::PromptPart::Reader in) {
        s.about(msg::read(in.getKey()), {}, [&] { s.take_part(in); });
      }),
      on<msg::CancelJobs>([&s](msg::CancelJobs::Reader in) { s.cancel(in); }),
      on<msg::RenewLeases>(
          [&s](const link::origin& from, msg::RenewLeases::Reader in) { s.renew(from, in); }),
      on<msg::EngineCommand>([&s](const link::origin& from, msg::EngineCommand::Reader in) {
        s.command(from.from.name, in);
      }),
      on<msg::PrefixResync>([&s](const link::origin& from, msg::PrefixResync::Reader) {
        s.tell_all_prefixes(from.from.name);
      }),
      [&s](const prepared& x) { s.about(x.id, [&] { s.submitted(x); }); },
      [&s](const hand_over_opened& x) { s.opened(x); },
      [&s](const hand_over_complete& x) { s.complete(x); },
      [&s](const hand_over_done& x) { s.delivered(x); },
      [&s](const hand_over_failed& x) { s.transfer_failed(x); },
      [&s](engine_events& x) { s.happened(x); },
      [&s](watch_atom, std::uint64_t number) {
        if (number == s.watches) s.watch();
      },
      [&s](report_atom) { s.report_regularly(); },
      [&s](idle_atom) { s.check_idle(); },
      [&s](drained_atom, std::uint64_t number) { s.hold_over(number); },
      [&s](stopped_atom) { s.stopped(); },
      [&s](stop_worker) { s.stop_now(); },
      [&s](announce_again) {
        s.announce();
        s.report();
      },
  };
}

}  // namespace

caf::actor spawn_worker(caf::actor_system& system, worker_options options) {
  return system.spawn(behavior, std::move(options));
}

}  // namespace troupe::workers
