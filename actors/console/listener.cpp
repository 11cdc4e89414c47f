#include "actors/console/listener.hpp"

#include "actors/console/frames.hpp"
#include "actors/console/session.hpp"
#include "actors/directory/refusal_log.hpp"
#include "actors/link/sockets.hpp"
#include "actors/link/tls_session.hpp"
#include "actors/supervision/introspection.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <spdlog/spdlog.h>

#include <chrono>
#include <map>
#include <memory>
#include <utility>

namespace troupe::console {

/// From the doorman to the listener: a terminal is here, and this is its port.
struct terminal_here {
  caf::actor port;
  trust::facts who;  ///< by its certificate; role `none`: on a plain port
};
/// To a port: this session is yours.
struct session_here {
  caf::actor session;
};
/// To the listener: this actor accepts for it.
struct doorman_here {
  caf::actor doorman;
};

}  // namespace troupe::console

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::console::terminal_here)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::console::session_here)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::console::doorman_here)

namespace troupe::console {

namespace {

/// Read at once from a terminal.
constexpr std::size_t read_bytes_max = 64 * 1024;

/// What strangers can have logged as often as they like is logged once.
using refusals = directory::refusal_log;

using proof_atom = caf::atom_constant<caf::atom("conproof")>;

/// A terminal's connection: cuts bytes into messages, and writes messages as frames.
struct port_state {
  caf::io::broker* self;
  caf::io::connection_handle connection;
  caf::actor listener;
  caf::actor session;
  frame_reader frames;
  std::shared_ptr<const link::tls_peers> peers;  ///< null: plain
  std::shared_ptr<refusals> heard;               ///< of all ports, which have one thread
  bool introduced = false;
  static constexpr const char* name = "console-port";

  explicit port_state(caf::io::broker* s) : self(s) {}

  void listen() {
    self->configure_read(connection, caf::io::receive_policy::at_most(read_bytes_max));
  }
  void introduce(trust::facts who) {
    introduced = true;
    self->send(listener, terminal_here{caf::actor_cast<caf::actor>(self), std::move(who)});
  }

  void read(const caf::io::new_data_msg& x) {
    frames.push({reinterpret_cast<const char*>(x.buf.data()), x.buf.size()});
    if (session) return forward();
    // What could be read has come through the handshake.
    look_who();
  }
  /// By TLS: nobody is a terminal before the handshake is over.
  void look_who() {
    if (introduced) return;
    auto who = peers->find({self->remote_addr(connection), self->remote_port(connection)});
    if (!who) return self->quit();
    introduce(*std::move(who));
  }
  void forward() {
    while (true) {
      auto m = frames.next();
      if (!m) {
        if (heard->hear(m.error().message, self->clock().now()) == refusals::verdict::log)
          spdlog::warn("event=console_closed reason=\"{}\"", m.error().message);
        return self->quit();
      }
      if (!*m) return;
      self->send(session, from_terminal{**std::move(m)});
    }
  }
  void write(const to_terminal& x) {
    const auto bytes = to_frame(x.what);
    self->write(connection, bytes.size(), bytes.data());
    self->flush(connection);
  }
};

caf::behavior port_behavior(caf::stateful_actor<port_state, caf::io::broker>* self,
                            caf::io::connection_handle connection, const caf::actor& listener,
                            const std::shared_ptr<const link::tls_peers>& peers,
                            const std::shared_ptr<refusals>& heard) {
  auto& s = self->state;
  s.heard = heard;
  s.connection = std::move(connection);
  s.listener = listener;
  s.peers = peers;
  self->set_down_handler([self](caf::down_msg&) { self->quit(); });
  self->set_default_handler(caf::drop);
  self->monitor(listener);
  if (peers) {
    // The handshake comes with reading.
    s.listen();
    self->delayed_send(self, link::proof_timeout, proof_atom::value);
  } else {
    s.introduce({});
  }
  return {
      // Who says nothing yet may have proved who it is: a person thinks.
      [self](proof_atom) { self->state.look_who(); },
      // On a plain port, nothing is read before there is somebody to read for.
      [self](const session_here& x) {
        auto& state = self->state;
        state.session = x.session;
        self->monitor(x.session);
        if (state.peers)
          state.forward();
        else
          state.listen();
      },
      [self](const caf::io::new_data_msg& x) { self->state.read(x); },
      [self](const to_terminal& x) { self->state.write(x); },
      [self](const caf::io::connection_closed_msg&) { self->quit(); },
  };
}

caf::behavior doorman_behavior(caf::io::broker* self, const caf::actor& listener,
                               const caf::io::doorman_ptr& door,
                               const std::shared_ptr<const link::tls_peers>& peers) {
  self->add_doorman(door);
  self->set_default_handler(caf::drop);
  self->set_down_handler([self](caf::down_msg&) { self->quit(); });
  self->monitor(listener);
  return {
      [self, listener, peers,
       heard = std::make_shared<refusals>()](const caf::io::new_connection_msg& x) {
        self->fork(port_behavior, x.handle, listener, peers, heard);
      },
      [self](const caf::io::acceptor_closed_msg&) { self->quit(); },
  };
}

struct listener_state {
  caf::event_based_actor* self;
  listener_options options;
  caf::actor doorman;
  std::map<caf::actor_addr, supervision::child_report> sessions;
  std::uint64_t next = 1;
  refusals heard;
  static constexpr const char* name = "console-listener";

  explicit listener_state(caf::event_based_actor* s) : self(s) {}

  void admit(const terminal_here& x) {
    if (sessions.size() >= sessions_max) {
      constexpr auto* why = "there are as many sessions as there may be";
      if (heard.hear(why, self->clock().now()) == refusals::verdict::log)
        spdlog::warn("event=console_refused host={} reason=\"{}: {}\"", options.host, why,
                     sessions.size());
      return self->send_exit(x.port, caf::exit_reason::user_shutdown);
    }
    session_options o;
    o.name = "console/" + options.host + "/" + std::to_string(next++);
    o.generation = options.next_generation();
    o.hosts = options.hosts;
    o.office = options.office;
    o.directory = options.directory;
    o.view = options.view;
    o.drain = options.drain;
    o.port = x.port;
    if (options.credentials) {
      o.as = x.who.as;
      o.person = x.who.name;
      spdlog::info("event=console_session session={} person={} role={}", o.name, o.person,
                   trust::to_string(o.as));
    }
    supervision::child_report child;
    child.now = supervision::child_report::condition::running;
    child.id = o.name;
    child.generation = o.generation;
    const auto session = spawn_session(self, std::move(o));
    child.actor = session;
    sessions.emplace(session.address(), std::move(child));
    self->send(x.port, session_here{session});
  }

  supervision::actor_report report() const {
    supervision::actor_report r{self->mailbox().size(), {}, {}};
    for (const auto& [address, child] : sessions) r.children.push_back(child);
    return r;
  }
};

caf::behavior listener_behavior(caf::stateful_actor<listener_state>* self,
                                listener_options options) {
  auto& s = self->state;
  s.options = std::move(options);
  self->set_down_handler([&s](caf::down_msg& d) {
    if (s.doorman && d.source == s.doorman.address())
      return s.self->quit(caf::make_error(caf::exit_reason::unhandled_exception));
    s.sessions.erase(d.source);
  });
  self->set_default_handler(caf::drop);
  self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  return {
      [&s](const terminal_here& x) { s.admit(x); },
      [&s](const doorman_here& x) {
        s.doorman = x.doorman;
        s.self->monitor(s.doorman);
      },
      [&s](const supervision::describe_actor&) { return s.report(); },
  };
}

struct open_port {
  caf::io::doorman_ptr door;  ///< null: it cannot be had
  std::shared_ptr<const link::tls_peers> peers;
};

open_port open(caf::actor_system& system, const listener_options& options) {
  if (!options.credentials) {
    auto door = system.middleman().backend().new_tcp_doorman(options.port, options.address.c_str(),
                                                             true);
    return {door ? *door : nullptr, nullptr};
  }
  auto o = std::make_shared<link::tls_options>();
  o->credentials = options.credentials;
  o->roles = {trust::role::operator_, trust::role::viewer};
  // All connections have one thread.
  o->on_refused = [heard = std::make_shared<refusals>()](const std::string&, const error& why) {
    if (heard->hear(why.message, std::chrono::steady_clock::now()) == refusals::verdict::log)
      spdlog::warn("event=console_refused reason=\"{}\"", refusals::shown(why.message));
  };
  // Ports look after their own time, so that nobody has to sweep the room.
  auto door = link::open_door(system, options.port, options.address, link::tls_guard(o),
                              std::make_shared<link::waiting_room>());
  return {door ? *door : nullptr, o->peers};
}

}  // namespace

expected<console_listener> spawn_listener(caf::actor_system& system, listener_options options) {
  const auto where = options.address + ":" + std::to_string(options.port);
  console_listener out;
  const auto [door, peers] = open(system, options);
  if (!door) return error{"port_in_use", "cannot listen for consoles on " + where};
  out.port = door->port();
  out.actor = system.spawn(listener_behavior, std::move(options));
  const auto doorman = system.middleman().spawn_broker(doorman_behavior, out.actor, door, peers);
  caf::anon_send(out.actor, doorman_here{doorman});
  return out;
}

}  // namespace troupe::console
