#include "apps/engine/loading_status.hpp"

#include "messages/engine.capnp.h"

#include <caf/all.hpp>

namespace troupe::apps {

namespace {

using tell_atom = caf::atom_constant<caf::atom("ldtell")>;
using tick_atom = caf::atom_constant<caf::atom("ldtick")>;
using fail_atom = caf::atom_constant<caf::atom("ldfail")>;

struct teller_state {
  std::shared_ptr<link::post_office> office;
  directory::entry entry;
  std::string to;
  std::shared_ptr<std::atomic<float>> progress;
  error failure;  ///< empty while loading goes on

  void say() const {
    msg::draft<msg::EngineStatus> d;
    directory::write(d->initEntry(), entry);
    d->setProgress(*progress);
    if (!failure.code.empty()) {
      auto f = d->initFailure();
      f.setCode(failure.code);
      f.setMessage(failure.message);
    }
    if (auto e = std::move(d).freeze())
      office->send({to, 0}, {entry.name, entry.generation}, *std::move(e));
  }
};

/// Says how loading goes, each `interval` and when it is told to.
caf::behavior teller(caf::stateful_actor<teller_state>* me, const teller_state& start) {
  me->state = start;
  me->send(me, tick_atom::value);
  return {
      [me](tell_atom) { me->state.say(); },
      [me](tick_atom) {
        me->state.say();
        me->delayed_send(me, loading_status::interval, tick_atom::value);
      },
      [me](fail_atom, const std::string& code, const std::string& message) {
        me->state.failure = {code, message};
        me->state.entry.state = msg::EntryState::FAILED;
        me->state.entry.detail = message;
        me->state.say();
      },
  };
}

}  // namespace

loading_status::loading_status(caf::actor_system& system, std::shared_ptr<link::post_office> office,
                               directory::entry self, std::string launcher) {
  self.state = msg::EntryState::LOADING;
  teller_ = system.spawn(
      teller, teller_state{std::move(office), std::move(self), std::move(launcher), progress_, {}});
}

loading_status::~loading_status() { caf::anon_send_exit(teller_, caf::exit_reason::user_shutdown); }

void loading_status::tell() { caf::anon_send(teller_, tell_atom::value); }

void loading_status::fail(const error& why) {
  caf::anon_send(teller_, fail_atom::value, why.code, why.message);
}

}  // namespace troupe::apps
