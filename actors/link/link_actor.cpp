#include "actors/link/link_actor.hpp"

#include "actors/link/greeting.hpp"
#include "actors/supervision/introspection.hpp"
#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

namespace troupe::link {

namespace {

using clock = std::chrono::steady_clock;
using tick_atom = caf::atom_constant<caf::atom("ltick")>;
using connect_now_atom = caf::atom_constant<caf::atom("lconnect")>;
using close_atom = caf::atom_constant<caf::atom("lclose")>;

// -- one end of a link ---------------------------------------------------------

/// Forwards parcels both ways; lives from the peer's Welcome (or ours) until either side is gone.
/// Its parent learns of the end by `link_down` to the owner.
struct link_state {
  caf::event_based_actor* self;
  std::shared_ptr<const link_context> context;
  caf::actor peer;
  peer_info info;
  std::uint64_t sent = 0;  ///< our last ping
  std::uint64_t seen = 0;  ///< the peer's last ping
  caf::actor_clock::time_point last_echo;
  caf::actor_clock::time_point last_ping;  ///< when we sent it
  bool announced = false;
  static constexpr const char* name = "link";

  explicit link_state(caf::event_based_actor* s) : self(s) {}

  void start(caf::actor p, peer_info i) {
    peer = std::move(p);
    info = std::move(i);
    self->monitor(peer);
    last_echo = last_ping = self->clock().now();
    announced = true;
    self->send(context->owner, link_up{info, caf::actor_cast<caf::actor>(self)});
    tick();
  }

  template <class T>
  void put(T&& what) {
    if (context->through)
      context->through->send(caf::actor_cast<caf::actor>(self), peer,
                             caf::make_message(std::forward<T>(what)));
    else
      self->send(peer, std::forward<T>(what));
  }

  /// Whether it is over, and ends it then: without an echo for too long; or without a ping of our
  /// own, for so long that the peer has given it up and does without it. A process that stood still
  /// finds what came meanwhile before its own tick: nothing of that may have an effect.
  bool is_over() {
    const auto limit = context->timing.silence_max;
    const auto now = self->clock().now();
    const auto is_late = [&](caf::actor_clock::time_point since, const std::string& what) {
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now - since).count();
      if (now - since > limit) end(what + " for " + std::to_string(ms) + " ms");
      return now - since > limit;
    };
    return is_late(last_echo, "no echo") || is_late(last_ping, "this process stood still");
  }

  void tick() {
    if (is_over()) return;
    last_ping = self->clock().now();
    msg::draft<msg::Ping> d;
    d->setSequence(++sent);
    d->setSeen(seen);
    put(std::move(d).freeze().value());
    self->delayed_send(self, context->timing.ping, tick_atom::value);
  }

  void pong(const msg::envelope<msg::Ping>& e) {
    if (is_over()) return;
    msg::view<msg::Ping> ping{e};
    seen = ping->getSequence();
    // Only an echo proves that our own direction works, too. One ping may be on its way.
    if (ping->getSeen() + 2 >= sent) last_echo = self->clock().now();
  }

  void carry(msg::parcel& p) {
    if (self->current_sender() != caf::actor_cast<caf::strong_actor_ptr>(peer))
      put(std::move(p));
    else if (!is_over())
      context->office->deliver(std::move(p), caf::actor_cast<caf::actor>(self),
                               info.kind == msg::ProcessKind::ENGINE ? far_end::engine
                                                                     : far_end::node);
  }

  void end(const std::string& reason) {
    context->office->drop_link(caf::actor_cast<caf::actor>(self));
    if (announced) {
      announced = false;
      self->send(context->owner, link_down{info, caf::actor_cast<caf::actor>(self), reason});
    }
    self->quit();
  }
};

caf::behavior link_behavior(caf::stateful_actor<link_state>* self) {
  ignore_strays(self);
  self->set_down_handler([self](caf::down_msg& down) {
    if (down.source == self->state.peer.address())
      self->state.end("the peer is gone: " + caf::to_string(down.reason));
  });
  return {
      [self](msg::parcel& p) { self->state.carry(p); },
      [self](const msg::envelope<msg::Ping>& e) { self->state.pong(e); },
      [self](const msg::envelope<msg::Goodbye>& e) {
        self->state.end("the peer said goodbye: " +
                        std::string{msg::view<msg::Goodbye>{e} -> getReason().cStr()});
      },
      [self](tick_atom) { self->state.tick(); },
      supervision::answers_for_itself(self,
                                      [self] {
                                        return supervision::actor_facts{
                                            {"sent", std::to_string(self->state.sent)},
                                            {"seen", std::to_string(self->state.seen)}};
                                      }),
      [self](close_atom, const std::string& reason) {
        msg::draft<msg::Goodbye> d;
        d->setReason(reason);
        self->state.put(std::move(d).freeze().value());
        self->state.end(reason);
      },
  };
}

/// The accepting end: the peer has been judged; greet it.
caf::behavior accepted_link(caf::stateful_actor<link_state>* self,
                            std::shared_ptr<const link_context> context, const caf::actor& peer,
                            const peer_info& info) {
  self->state.context = std::move(context);
  auto behavior = link_behavior(self);
  msg::draft<msg::Welcome> d;
  msg::view<msg::Hello> hello{make_hello(self->state.context->self)};
  d->setHello(*hello);
  d->setProtocol(info.protocol);
  self->send(peer, std::move(d).freeze().value());
  self->state.start(peer, info);
  return behavior;
}

/// The connecting end: says Hello to the listener and waits for a link of the other side. Quits
/// with an error when refused.
caf::behavior connecting_link(caf::stateful_actor<link_state>* self,
                              std::shared_ptr<const link_context> context,
                              const caf::actor& listener, const caf::actor& connector,
                              const std::string& expected_host) {
  self->state.context = context;
  ignore_strays(self);
  self->monitor(listener);
  self->set_down_handler([self](caf::down_msg& down) {
    self->quit(down.reason ? down.reason : caf::make_error(caf::exit_reason::unknown));
  });
  self->send(listener, make_hello(context->self));
  return {
      [self, expected_host](const msg::envelope<msg::Welcome>& e) {
        msg::view<msg::Welcome> welcome{e};
        auto& s = self->state;
        auto hello = welcome->getHello();
        peer_info info;
        info.kind = hello.getKind();
        info.host = hello.getHost().cStr();
        info.protocol = welcome->getProtocol();
        auto id = hello.getProcessId();
        if (id.size() == info.process.size()) std::copy(id.begin(), id.end(), info.process.begin());
        // An engine trusts the node that started it; a node judges in both directions.
        if (s.context->self.kind == msg::ProcessKind::NODE) {
          auto judged = judge(s.context->self, hello, s.context->known_hosts);
          if (judged && !expected_host.empty() && judged->host != expected_host)
            judged = error{"other_host", "host '" + expected_host +
                                             "' was expected, but who is there calls itself '" +
                                             judged->host + "'"};
          if (!judged) {
            self->send(s.context->owner, link_refused{info.host, judged.error(), false});
            return self->quit();
          }
          info = *judged;
        }
        self->become(link_behavior(self));
        s.start(caf::actor_cast<caf::actor>(self->current_sender()), info);
      },
      [self, connector](const msg::envelope<msg::Refused>& e) {
        msg::view<msg::Refused> refused{e};
        error why{refused->getFailure().getCode().cStr(),
                  refused->getFailure().getMessage().cStr()};
        self->send(connector, link_refused{"", why, true});
        self->quit();
      },
      caf::after(context->timing.handshake) >>
          [self] { self->quit(caf::make_error(caf::sec::request_timeout)); },
  };
}

// -- listening -------------------------------------------------------------------

caf::behavior listener_behavior(caf::event_based_actor* self,
                                std::shared_ptr<const link_context> context) {
  ignore_strays(self);
  return {
      [self, context](const msg::envelope<msg::Hello>& e) {
        auto peer = caf::actor_cast<caf::actor>(self->current_sender());
        if (!peer) return;
        answer_hello(self, context, peer, judge_hello(*context, e));
      },
      supervision::answers_for_itself(self),
  };
}

// -- connecting ------------------------------------------------------------------

struct connector_state {
  caf::event_based_actor* self;
  std::shared_ptr<const link_context> context;
  std::string peer_name;
  std::string address;
  std::uint16_t port = 0;
  std::chrono::milliseconds pause{0};
  caf::actor link;
  bool had_complained = false;
  bool was_refused = false;
  std::uint64_t attempt = 0;  ///< the latest that was arranged; older ones are void
  static constexpr const char* name = "connector";

  explicit connector_state(caf::event_based_actor* s) : self(s) {}
  ~connector_state() {
    if (link) close_link(link, "this process is stopping");
  }

  bool is_node() const { return context->self.kind == msg::ProcessKind::NODE; }

  void connect() {
    const auto dialler = context->dialler ? context->dialler
                                          : caf::actor_cast<caf::actor>(
                                                self->system().middleman().actor_handle());
    self->request(dialler, context->timing.handshake, caf::connect_atom::value, address, port)
        .then(
            [this](const caf::node_id&, caf::strong_actor_ptr& listener,
                   const std::set<std::string>&) {
              if (!listener) return again("nobody listens for links there");
              link = self->spawn<caf::monitored>(
                  connecting_link, context, caf::actor_cast<caf::actor>(listener),
                  caf::actor_cast<caf::actor>(self), is_node() ? peer_name : std::string{});
            },
            [this](caf::error& e) { again(self->system().render(e)); });
  }

  void refused(const link_refused& why) {
    self->send(context->owner, why);
    // An engine's start is over then. A node asks again: the peer may be restarted with another
    // cluster file.
    if (context->self.kind != msg::ProcessKind::NODE) return self->quit();
    was_refused = true;
    // The DOWN of the refused attempt may have overtaken this message: then the attempt that it
    // arranged comes too early.
    if (!link) again(why.why.message);
  }

  void again(const std::string& why) {
    pause = std::clamp(pause * 2, context->timing.reconnect_min, context->timing.reconnect_max);
    if (!had_complained) {
      had_complained = true;
      spdlog::info("event=link_waiting peer={} address={}:{} reason=\"{}\"", peer_name, address,
                   port, why);
    }
    if (std::exchange(was_refused, false)) pause = context->timing.refused_retry;
    self->delayed_send(self, pause, connect_now_atom::value, ++attempt);
  }
};

caf::behavior connector_behavior(caf::stateful_actor<connector_state>* self,
                                 std::shared_ptr<const link_context> context, std::string peer_name,
                                 std::string address, std::uint16_t port) {
  auto& s = self->state;
  s.context = std::move(context);
  s.peer_name = std::move(peer_name);
  s.address = std::move(address);
  s.port = port;
  ignore_strays(self);
  self->set_down_handler([self](caf::down_msg& down) {
    if (down.source != self->state.link.address()) return;
    self->state.link = nullptr;
    self->state.pause = std::chrono::milliseconds{0};
    self->state.again(down.reason ? self->system().render(down.reason) : "the link ended");
  });
  self->send(self, connect_now_atom::value, s.attempt);
  return {
      [self](connect_now_atom, std::uint64_t attempt) {
        if (attempt == self->state.attempt) self->state.connect();
      },
      [self](link_refused& refused) {
        refused.peer = self->state.peer_name;
        self->state.refused(refused);
      },
      supervision::answers_for_itself(self,
                                      [self] {
                                        return supervision::actor_facts{
                                            {"state",
                                             self->state.link ? "connected" : "connecting"}};
                                      }),
  };
}

}  // namespace

void ignore_strays(caf::scheduled_actor* self) {
  // The default error handler would end the actor at a stray error from a peer.
  self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  self->set_default_handler(caf::drop);
}

expected<peer_info> judge_hello(const link_context& context, const msg::envelope<msg::Hello>& e) {
  try {
    msg::view<msg::Hello> hello{e};
    return judge(context.self, *hello, context.known_hosts);
  } catch (const kj::Exception&) {
    return error{"malformed_hello", "a peer's Hello cannot be read"};
  }
}

void answer_hello(caf::event_based_actor* self, const std::shared_ptr<const link_context>& context,
                  const caf::actor& peer, const expected<peer_info>& judged) {
  if (judged) {
    self->spawn(accepted_link, context, peer, *judged);
    return;
  }
  msg::draft<msg::Refused> d;
  auto failure = d->initFailure();
  failure.setCode(judged.error().code);
  failure.setMessage(judged.error().message);
  self->send(peer, std::move(d).freeze().value());
  self->send(context->owner, link_refused{"", judged.error(), false});
}

caf::actor spawn_listener(caf::actor_system& system, std::shared_ptr<const link_context> context) {
  return system.spawn(listener_behavior, std::move(context));
}

caf::actor spawn_link(caf::actor_system& system, std::shared_ptr<const link_context> context,
                      const caf::actor& listener, const caf::actor& connector) {
  return system.spawn(connecting_link, std::move(context), listener, connector, std::string{});
}

caf::actor spawn_connector(caf::actor_system& system, std::shared_ptr<const link_context> context,
                           std::string peer_name, std::string address, std::uint16_t port) {
  return system.spawn(connector_behavior, std::move(context), std::move(peer_name),
                      std::move(address), port);
}

void close_link(const caf::actor& link, const std::string& reason) {
  caf::anon_send(link, close_atom::value, reason);
}

}  // namespace troupe::link
