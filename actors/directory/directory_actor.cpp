#include "actors/directory/directory_actor.hpp"

#include "actors/directory/refusal_log.hpp"
#include "actors/link/guarded.hpp"
#include "actors/supervision/introspection.hpp"

#include <caf/all.hpp>

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <deque>
#include <utility>

namespace troupe::directory {

namespace {

/// Earlier processes of one host that are remembered while the present one is up.
constexpr std::size_t replaced_max = 16;

struct actor_state {
  caf::event_based_actor* self;
  std::unique_ptr<directory_state> entries;
  std::shared_ptr<link::post_office> office;
  std::shared_ptr<directory_view> view;
  std::map<std::string, caf::actor> peers;    ///< host → link
  std::map<std::string, caf::actor> engines;  ///< own engine's name → link
  std::map<std::string, caf::actor>
      launchers;  ///< own engine's name → who wants to know of its link
  std::map<caf::actor_addr, link::link_up> links;  ///< that are up
  /// Host → processes of that name that the present one has replaced, as long as its link is up.
  std::map<std::string, std::deque<link::process_id>> replaced;
  std::vector<caf::actor> subscribers;
  refusal_log refusals;
  static constexpr const char* name = "directory";

  explicit actor_state(caf::event_based_actor* s) : self(s) {}
  ~actor_state() {
    for (const auto& [host, l] : peers) link::close_link(l, "this node is stopping");
    for (const auto& [engine, l] : engines) link::close_link(l, "this node is stopping");
  }

  void publish(const change& c, const std::string& lost_host = {}) {
    auto all = entries->all();
    view->set(all);
    for (const auto& who : subscribers) self->send(who, directory_changed{c, all, lost_host});
  }

  /// Our own set changed: peers get all of it.
  void replicate() {
    for (const auto& [host, l] : peers) send_set(host);
  }
  void send_set(const std::string& host) {
    office->send({directory_name(host), 0}, {directory_name(entries->own_host()), 0},
                 entries->own_update());
  }

  void set_own(entry e) {
    if (auto i = engines.find(e.name); i != engines.end())
      office->set_route(e.name, e.generation, i->second, link::far_end::engine);
    changed_own(entries->set_own(std::move(e)));
  }
  void changed_own(const change& c) {
    if (c.empty()) return;
    publish(c);
    replicate();
  }

  void merge(msg::DirectoryUpdate::Reader update) {
    auto i = peers.find(std::string{update.getHost().cStr()});
    if (i == peers.end()) return;     // the link went down while this was on its way
    auto c = entries->merge(update);  // all is read before anything changes
    for (const auto& gone : c.removed) office->drop_route(gone.name);
    for (const auto& x : c.added_or_changed) office->set_route(x.name, x.generation, i->second);
    if (!c.empty()) publish(c);
  }

  void up(const link::link_up& x) {
    links[x.link.address()] = x;
    self->monitor(x.link);
    if (x.peer.kind == msg::ProcessKind::ENGINE) {
      engines[x.peer.engine] = x.link;
      office->set_route(x.peer.engine, x.peer.generation, x.link, link::far_end::engine);
      if (auto i = launchers.find(x.peer.engine); i != launchers.end()) self->send(i->second, x);
      return;
    }
    if (was_replaced(x.peer)) return turn_away(x);
    spdlog::info(
        "event=peer_up host={} protocol={}{}{}", x.peer.host, x.peer.protocol,
        x.peer.skew.empty() ? "" : fmt::format(" config_skew=\"{}\"", fmt::join(x.peer.skew, ",")),
        x.peer.behind.empty() ? "" : " behind=" + x.peer.behind);
    if (auto old = peers.find(x.peer.host); old != peers.end() && old->second != x.link) {
      note_replaced(links[old->second.address()].peer, x.peer);
      // The old link takes its routes along when it ends, so the peer's set must come in anew,
      // whatever its version.
      link::close_link(old->second, "a newer link to this host is up");
      publish(entries->lose_host(x.peer.host), x.peer.host);
    }
    peers[x.peer.host] = x.link;
    office->set_route(directory_name(x.peer.host), 0, x.link);
    send_set(x.peer.host);
  }

  // A node that was restarted takes its own place, and the one before it is dead. One that comes
  // back after it was replaced is alive: two machines claim one name, and without this they would
  // take it from each other for ever.
  void note_replaced(const link::peer_info& old, const link::peer_info& by) {
    if (old.process == by.process) return;
    auto& all = replaced[by.host];
    all.push_back(old.process);
    if (all.size() > replaced_max) all.pop_front();
  }
  bool was_replaced(const link::peer_info& peer) const {
    auto i = replaced.find(peer.host);
    return i != replaced.end() &&
           std::find(i->second.begin(), i->second.end(), peer.process) != i->second.end();
  }
  void turn_away(const link::link_up& x) {
    link::close_link(x.link, "another process of this host's name has taken its place");
    refused({x.peer.host,
             {"host_claimed_twice",
              "two processes say that they are host " + x.peer.host +
                  "; the one that came last is kept until it ends: stop one of them"},
             false});
  }

  /// A link that could not say so itself: it was killed, or threw over what its peer sent.
  void gone(const caf::down_msg& d) {
    std::erase_if(subscribers, [&](const caf::actor& who) { return who.address() == d.source; });
    auto i = links.find(d.source);
    if (i == links.end()) return;
    auto x = i->second;
    office->drop_link(x.link);
    down({x.peer, x.link, "the link failed: " + self->system().render(d.reason)});
  }

  void down(const link::link_down& x) {
    links.erase(x.link.address());
    if (x.peer.kind == msg::ProcessKind::ENGINE) {
      const auto current = engines.find(x.peer.engine);
      // Of one whose place a newer link has taken nobody needs to hear: its engine is not cut off.
      if (current == engines.end() || current->second != x.link) return;
      engines.erase(current);
      if (auto i = launchers.find(x.peer.engine); i != launchers.end()) self->send(i->second, x);
      return;
    }
    auto i = peers.find(x.peer.host);
    if (i == peers.end() || i->second != x.link) return;  // a newer link has taken its place
    spdlog::warn("event=peer_down host={} reason=\"{}\"", x.peer.host, x.reason);
    peers.erase(i);
    replaced.erase(x.peer.host);
    auto c = entries->lose_host(x.peer.host);
    publish(c, x.peer.host);
  }

  /// The links are shown below their owner.
  supervision::actor_report report() const {
    supervision::actor_report r{
        self->mailbox().size(), {{"entries", std::to_string(entries->all()->size())}}, {}};
    for (const auto& [address, x] : links) {
      supervision::child_report c;
      c.now = supervision::child_report::condition::running;
      c.id = "link to " + (x.peer.engine.empty() ? x.peer.host : x.peer.engine);
      c.generation = x.peer.generation;
      c.actor = x.link;
      r.children.push_back(std::move(c));
    }
    return r;
  }

  void refused(const link::link_refused& x) {
    using verdict = refusal_log::verdict;
    const auto now = refusal_log::time_point{self->clock().now().time_since_epoch()};
    switch (refusals.hear(x.peer + " " + x.why.message, now)) {
    case verdict::quiet:
      return;
    case verdict::overflow:
      spdlog::warn("event=link_refusals_many hint=\"more than {} different refusals within {} h: "
                   "further ones are not logged; is a stranger at the link port?\"",
                   refusal_log::refusals_max, refusal_log::period.count());
      return;
    case verdict::log:
      break;
    }
    spdlog::error("event=link_refused by={} peer={} code={} reason=\"{}\"",
                  x.by_peer ? "peer" : "us", refusal_log::shown(x.peer),
                  refusal_log::shown(x.why.code), refusal_log::shown(x.why.message));
  }
};

caf::behavior behavior(caf::stateful_actor<actor_state>* self, std::string host,
                       link::process_id process, std::shared_ptr<link::post_office> office,
                       std::shared_ptr<directory_view> view) {
  auto& s = self->state;
  s.entries = std::make_unique<directory_state>(
      host, std::vector<std::uint8_t>(process.begin(), process.end()));
  s.office = std::move(office);
  s.view = std::move(view);
  s.office->bind(directory_name(host), 0, caf::actor_cast<caf::actor>(self));
  self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  self->set_down_handler([self](caf::down_msg& down) { self->state.gone(down); });
  return {
      link::on<msg::DirectoryUpdate>([&s](msg::DirectoryUpdate::Reader in) { s.merge(in); }),
      [self](const set_entry& x) { self->state.set_own(x.value); },
      [self](const remove_entry& x) {
        self->state.changed_own(self->state.entries->remove_own(x.name, x.generation));
      },
      [self](const subscribe& x) {
        self->state.subscribers.push_back(x.who);
        self->monitor(x.who);
        auto all = self->state.entries->all();
        change c;
        for (const auto& [name, e] : *all) c.added_or_changed.push_back(e);
        self->send(x.who, directory_changed{std::move(c), all, {}});
      },
      [self](const watch_engine& x) { self->state.launchers[x.engine] = x.launcher; },
      [self](const link::link_up& x) { self->state.up(x); },
      [self](const link::link_down& x) { self->state.down(x); },
      [self](const link::link_refused& x) { self->state.refused(x); },
      [self](const supervision::describe_actor&) { return self->state.report(); },
  };
}

}  // namespace

void announce_ready(const caf::actor& directory, std::string name, msg::Role role,
                    std::uint64_t generation) {
  entry e;
  e.name = std::move(name);
  e.generation = generation;
  e.role = role;
  e.state = msg::EntryState::READY;
  caf::anon_send(directory, set_entry{std::move(e)});
}

std::string directory_name(const std::string& host) { return "directory/" + host; }

caf::actor spawn_directory(caf::actor_system& system, std::string host, link::process_id process,
                           std::shared_ptr<link::post_office> office,
                           std::shared_ptr<directory_view> view) {
  return system.spawn(behavior, std::move(host), process, std::move(office), std::move(view));
}

}  // namespace troupe::directory
