#include "tests/actor/link/contract.hpp"

#include <caf/all.hpp>
#include <spdlog/spdlog.h>

namespace troupe::link::contract {

namespace {

caf::behavior owner(caf::event_based_actor* self, const std::shared_ptr<news>& to) {
  self->set_default_handler(caf::drop);
  return {
      [to](const link_up& x) { to->ups.add(x); },
      [to](const link_down& x) { to->downs.add(x); },
      [to](const link_refused& x) { to->refusals.add(x); },
  };
}

caf::behavior recorder(caf::event_based_actor* self, const inbox& to) {
  self->set_default_handler(caf::drop);
  return {
      [got = to.got](const origin& from, const msg::envelope<msg::Goodbye>& e) {
        got->add({from, msg::view<msg::Goodbye>{e} -> getReason().cStr()});
      },
      [parcels = to.parcels](const msg::parcel& p) { parcels->add(p); },
  };
}

}  // namespace

std::vector<std::string> inbox::texts() const {
  std::vector<std::string> out;
  for (auto& [from, what] : got->all()) out.push_back(what);
  return out;
}

msg::envelope<msg::Goodbye> text(const std::string& what) {
  msg::draft<msg::Goodbye> d;
  d->setReason(what);
  return std::move(d).freeze().value();
}

side::side(caf::actor_system& in, const std::string& host, std::uint8_t process,
           const std::string& cluster)
    : system(in) {
  spdlog::set_level(spdlog::level::off);
  context.self.cluster_id = cluster;
  context.self.process.fill(process);
  context.self.host = host;
  context.known_hosts = {"a", "b"};
  context.office = office;
  context.owner = system.spawn(owner, heard);
  actors.push_back(context.owner);
}

inbox side::receiver() {
  inbox x;
  x.actor = system.spawn(recorder, x);
  actors.push_back(x.actor);
  return x;
}

inbox side::bind(const std::string& name, std::uint64_t generation) {
  auto x = receiver();
  office->bind(name, generation, x.actor);
  return x;
}

std::vector<caf::actor> side::everybody() const {
  std::vector<caf::actor> out;
  for (const auto& x : heard->ups.all()) out.push_back(x.link);
  out.insert(out.end(), actors.rbegin(), actors.rend());
  return out;
}

void side::end() {
  for (const auto& x : everybody()) caf::anon_send_exit(x, caf::exit_reason::user_shutdown);
  actors.clear();
  heard->ups.clear();
  heard->downs.clear();
}

}  // namespace troupe::link::contract
