#include "tests/actor/link/basp.hpp"

#include "actors/link/sockets.hpp"

#include <caf/io/all.hpp>
#include <caf/io/basp_broker.hpp>

#include <signal.h>

#include <map>
#include <stdexcept>
#include <thread>
#include <tuple>

namespace troupe::link::contract {

namespace {

constexpr milliseconds look{5};
/// For an answer of another process.
constexpr std::chrono::seconds answer_max{3};

caf::behavior desk(caf::event_based_actor* self) {
  self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  auto all = std::make_shared<std::map<std::string, caf::actor>>();
  return {
      [all](caf::put_atom, const std::string& name, const caf::actor& who) {
        (*all)[name] = who;
        return caf::ok_atom::value;
      },
      [all](caf::get_atom, const std::string& name) -> caf::result<caf::actor> {
        const auto i = all->find(name);
        if (i == all->end()) return caf::sec::invalid_argument;
        return i->second;
      },
  };
}

caf::actor desk_at(caf::actor_system& system, std::uint16_t port) {
  auto found = system.middleman().remote_actor("127.0.0.1", port);
  return found ? *found : nullptr;
}

}  // namespace

bool wait_until(const std::function<bool()>& condition, milliseconds at_most) {
  const auto end = std::chrono::steady_clock::now() + at_most;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(look);
  }
  return true;
}

basp_process::basp_process(const std::string& host, std::uint8_t number, const std::string& cluster)
    : at(system, host, number, cluster) {
  ::signal(SIGPIPE, SIG_IGN);
  system.await_actors_before_shutdown(false);
}

basp_process::~basp_process() {
  if (at.context.dialler) end_dialler(at.context.dialler);
  at.end();
}

exchange::exchange() {
  ::signal(SIGPIPE, SIG_IGN);
  system_.await_actors_before_shutdown(false);
  desk_ = system_.spawn(desk);
  auto bound = system_.middleman().publish(desk_, 0, "127.0.0.1", true);
  if (!bound) throw std::runtime_error("no port for an exchange");
  port_ = *bound;
}

exchange::~exchange() { caf::anon_send_exit(desk_, caf::exit_reason::user_shutdown); }

bool leave_at_exchange(caf::actor_system& system, std::uint16_t port, const std::string& name,
                       const caf::actor& who) {
  const auto there = desk_at(system, port);
  if (!there) return false;
  bool done = false;
  caf::scoped_actor self{system};
  self->request(there, answer_max, caf::put_atom::value, name, who)
      .receive([&](caf::ok_atom) { done = true; }, [](const caf::error&) {});
  return done;
}

caf::actor ask_exchange(caf::actor_system& system, std::uint16_t port, const std::string& name) {
  const auto there = desk_at(system, port);
  caf::actor found;
  if (!there) return found;
  caf::scoped_actor self{system};
  self->request(there, answer_max, caf::get_atom::value, name)
      .receive([&](const caf::actor& x) { found = x; }, [](const caf::error&) {});
  return found;
}

bool is_direct(caf::actor_system& system, const caf::actor& who) {
  auto broker = system.middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
  bool direct = false;
  caf::scoped_actor self{system};
  self->request(broker, answer_max, caf::get_atom::value, who.node())
      .receive(
          [&](const caf::node_id&, const std::string&, std::uint16_t port) { direct = port != 0; },
          [](const caf::error&) {});
  return direct;
}

}  // namespace troupe::link::contract
