#include "apps/engine/loading_status.hpp"

#include "messages/engine.capnp.h"

#include <caf/all.hpp>

namespace troupe::apps {

namespace {

using tell_atom = caf::atom_constant<caf::atom("ldtell")>;
using tick_atom = caf::atom_constant<caf::atom("ldtick")>;

/// Says how loading goes, each `interval` and when it is told to.
caf::behavior teller(caf::event_based_actor* me, const std::shared_ptr<link::post_office>& office,
                     const directory::entry& entry, const std::string& to,
                     const std::shared_ptr<std::atomic<float>>& progress) {
  auto say = [office, entry, to, progress] {
    msg::draft<msg::EngineStatus> d;
    directory::write(d->initEntry(), entry);
    d->setProgress(*progress);
    if (auto e = std::move(d).freeze())
      office->send({to, 0}, {entry.name, entry.generation}, *std::move(e));
  };
  me->send(me, tick_atom::value);
  return {
      [say](tell_atom) { say(); },
      [me, say](tick_atom) {
        say();
        me->delayed_send(me, loading_status::interval, tick_atom::value);
      },
  };
}

}  // namespace

loading_status::loading_status(caf::actor_system& system, std::shared_ptr<link::post_office> office,
                               directory::entry self, std::string launcher)
    : self_(std::move(self)), launcher_(std::move(launcher)), office_(std::move(office)) {
  self_.state = msg::EntryState::LOADING;
  teller_ = system.spawn(teller, office_, self_, launcher_, progress_);
}

loading_status::~loading_status() { caf::anon_send_exit(teller_, caf::exit_reason::user_shutdown); }

void loading_status::tell() { caf::anon_send(teller_, tell_atom::value); }

void loading_status::fail(const error& why) {
  caf::anon_send_exit(teller_, caf::exit_reason::user_shutdown);
  msg::draft<msg::EngineStatus> d;
  auto entry = self_;
  entry.state = msg::EntryState::FAILED;
  entry.detail = why.message;
  directory::write(d->initEntry(), entry);
  d->initFailure().setCode(why.code);
  d->getFailure().setMessage(why.message);
  if (auto e = std::move(d).freeze())
    office_->send({launcher_, 0}, {self_.name, self_.generation}, *std::move(e));
}

}  // namespace troupe::apps
