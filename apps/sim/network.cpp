#include "apps/sim/network.hpp"

#include "messages/wire.hpp"

#include <algorithm>

namespace troupe::sim {

namespace {

/// From the network to a dialler: the answer to one of its calls.
using dialled_atom = caf::atom_constant<caf::atom("dialled")>;

}  // namespace

/// What an actor of another process is known by.
class remote_end final : public caf::actor_proxy {
 public:
  remote_end(caf::actor_config& cfg, network* net, std::uint64_t connection, std::size_t side,
             caf::actor_addr of)
      : caf::actor_proxy(cfg), net_(net), connection_(connection), side_(side), of_(std::move(of)) {
  }

  void enqueue(caf::mailbox_element_ptr what, caf::execution_unit*) override {
    net_->post(connection_, side_, of_, what->sender, what->move_content_to_message());
  }
  void kill_proxy(caf::execution_unit* context, caf::error reason) override {
    cleanup(std::move(reason), context);
  }
  const caf::actor_addr& of() const { return of_; }

 private:
  network* net_;
  std::uint64_t connection_;
  std::size_t side_;
  caf::actor_addr of_;
};

network::network(schedule& s, std::uint64_t seed, network_terms terms)
    : schedule_(s), random_(seed, 2), terms_(terms) {}

// -- what processes do -------------------------------------------------------------

expected<std::uint16_t> network::listen(process_id p, const std::string& address,
                                        std::uint16_t port, const caf::actor& listener) {
  if (port == 0) port = next_port_++;
  listeners_[{address, port}] = {p, listener};
  return port;
}

namespace {

struct dialler_state {
  std::map<std::uint64_t, caf::response_promise> calls;
  std::uint64_t next = 1;
  static constexpr const char* name = "dialler";
};

using dial_function =
    std::function<void(const std::string&, std::uint16_t, const caf::actor&, std::uint64_t)>;

caf::behavior dialler(caf::stateful_actor<dialler_state>* self, const dial_function& dial) {
  return {
      [self, dial](caf::connect_atom, const std::string& address, std::uint16_t port) {
        auto promise = self->make_response_promise();
        const auto call = self->state.next++;
        self->state.calls.emplace(call, promise);
        dial(address, port, caf::actor_cast<caf::actor>(self), call);
        return promise;
      },
      [self](dialled_atom, std::uint64_t call, const caf::strong_actor_ptr& listener) {
        auto node = self->state.calls.extract(call);
        if (!node) return;
        if (listener)
          node.mapped().deliver(caf::node_id{}, listener, std::set<std::string>{});
        else
          node.mapped().deliver(caf::make_error(caf::sec::cannot_connect_to_node));
      },
  };
}

}  // namespace

caf::actor network::spawn_dialler(process_id p) {
  return schedule_.system().spawn(
      dialler,
      dial_function{[this, p](const std::string& address, std::uint16_t port, const caf::actor& who,
                              std::uint64_t call) { dial(p, address, port, who, call); }});
}

void network::dial(process_id from, const std::string& address, std::uint16_t port,
                   const caf::actor& who, std::uint64_t call) {
  const auto found = listeners_.find({address, port});
  const auto to = found == listeners_.end() ? no_process : found->second.first;
  if (to != no_process && (is_cut(from, to) || is_cut(to, from))) return;  // its timeout tells it
  if (to != no_process && schedule_.frozen(to)) return;
  const auto there_and_back = to == no_process ? std::chrono::nanoseconds{terms_.remote_min}
                                               : latency(from, to) + latency(to, from);
  schedule_.after(
      there_and_back, from, [this, from, to, who, call, key = std::pair{address, port}] {
        const auto again = listeners_.find(key);
        caf::strong_actor_ptr listener;
        if (to != no_process && schedule_.alive(to) && again != listeners_.end() &&
            again->second.first == to) {
          auto& c = connect(from, to);
          listener = proxy_at(c, c.ends[0] == from ? 0 : 1,
                              caf::actor_cast<caf::strong_actor_ptr>(again->second.second));
        }
        caf::anon_send(who, dialled_atom::value, call, listener);
      });
}

network::connection& network::connect(process_id a, process_id b) {
  for (auto& [id, c] : connections_)
    if (c->open[0] && c->open[1] &&
        ((c->ends[0] == a && c->ends[1] == b) || (c->ends[0] == b && c->ends[1] == a)))
      return *c;
  auto made = std::make_unique<connection>();
  made->id = next_connection_++;
  made->ends = {a, b};
  return *connections_.emplace(made->id, std::move(made)).first->second;
}

// -- messages ----------------------------------------------------------------------

/// `side`: where the proxy stands in.
caf::strong_actor_ptr network::proxy_at(connection& c, std::size_t side,
                                        const caf::strong_actor_ptr& of) {
  auto& known = c.proxies[side][of->id()];
  if (known) return known;
  auto& system = schedule_.system();
  caf::actor_config cfg;
  known = caf::make_actor<remote_end, caf::strong_actor_ptr>(system.next_actor_id(), system.node(),
                                                             &system, cfg, this, c.id, side,
                                                             caf::actor_cast<caf::actor_addr>(of));
  of->get()->attach_functor([this, id = c.id, side, who = of->id()](const caf::error& reason) {
    actor_gone(id, side, who, reason);
  });
  return known;
}

/// A message to a proxy at `side`.
void network::post(std::uint64_t connection_id, std::size_t side, const caf::actor_addr& to,
                   caf::strong_actor_ptr sender, caf::message what) {
  auto found = connections_.find(connection_id);
  if (over_ || found == connections_.end()) return;
  auto& c = *found->second;
  if (!c.open[side] || !schedule_.alive(c.ends[side])) return;
  push(c.out[side], c.ends[side], c.ends[1 - side],
       [this, &c, side, to, sender = std::move(sender), what = std::move(what)] {
         if (c.open[1 - side]) arrived(c, 1 - side, to, sender, what);
       });
}

void network::arrived(connection& c, std::size_t side, const caf::actor_addr& to,
                      const caf::strong_actor_ptr& sender, caf::message what) {
  auto target = caf::actor_cast<caf::strong_actor_ptr>(to);
  if (!target || !schedule_.alive(c.ends[side])) return;
  auto from = sender ? proxy_at(c, side, sender) : nullptr;
  schedule_.log().tell(schedule_.now(), schedule_.name_of(c.ends[side]), [&] {
    if (what.match_elements<msg::parcel>()) {
      const auto& p = what.get_as<msg::parcel>(0);
      return "parcel for " + p.to.name + " from " + p.from.name + ", schema " +
             std::to_string(p.schema);
    }
    return caf::to_string(what);
  });
  target->get()->enqueue(std::move(from), caf::make_message_id(), std::move(what), nullptr);
}

/// An actor that has a proxy at `side` has ended. Of a process that was killed, the end of the
/// connection tells that.
void network::actor_gone(std::uint64_t connection_id, std::size_t side, caf::actor_id id,
                         const caf::error& reason) {
  auto found = connections_.find(connection_id);
  if (over_ || found == connections_.end()) return;
  auto& c = *found->second;
  if (!c.open[1 - side] || !schedule_.alive(c.ends[1 - side])) return;
  push(c.out[1 - side], c.ends[1 - side], c.ends[side], [&c, side, id, reason] {
    auto node = c.proxies[side].extract(id);
    if (node && node.mapped())
      static_cast<remote_end*>(node.mapped()->get())->kill_proxy(nullptr, reason);
  });
}

void network::close(connection& c, std::size_t side, const caf::error& why) {
  if (!std::exchange(c.open[side], false)) return;
  for (auto& [id, proxy] : std::exchange(c.proxies[side], {}))
    if (proxy) static_cast<remote_end*>(proxy->get())->kill_proxy(nullptr, why);
  if (!schedule_.alive(c.ends[side])) return;
  c.out[side].waiting.clear();
  push(c.out[side], c.ends[side], c.ends[1 - side],
       [this, &c, side, why] { close(c, 1 - side, why); });
}

// -- ways ----------------------------------------------------------------------------

bool network::is_cut(process_id from, process_id to) const {
  return !cuts_.empty() && cuts_.contains({hosts_.at(from), hosts_.at(to)});
}

void network::cut(const std::string& from, const std::string& to) {
  cuts_.insert({from, to});
  for (auto& [id, c] : connections_)
    for (std::size_t side : {0, 1})
      if (hosts_.at(c->ends[1 - side]) == from && hosts_.at(c->ends[side]) == to)
        watch_silence(*c, side);
}

void network::heal(const std::string& from, const std::string& to) {
  cuts_.erase({from, to});
  for (auto& [id, c] : connections_)
    for (std::size_t side : {0, 1})
      if (hosts_.at(c->ends[1 - side]) == from && hosts_.at(c->ends[side]) == to)
        ++c->outages[side];
  flush_ways();
}

void network::frozen(process_id p) {
  for (auto& [id, c] : connections_)
    for (std::size_t side : {0, 1})
      if (c->ends[1 - side] == p) watch_silence(*c, side);
}

void network::thawed(process_id p) {
  for (auto& [id, c] : connections_)
    for (std::size_t side : {0, 1})
      if (c->ends[1 - side] == p) ++c->outages[side];
}

bool network::silent(const connection& c, std::size_t side) const {
  return schedule_.frozen(c.ends[1 - side]) || is_cut(c.ends[1 - side], c.ends[side]) ||
         !schedule_.alive(c.ends[1 - side]);
}

/// Nothing comes in at `side` any more: without a change it gives the connection up.
void network::watch_silence(connection& c, std::size_t side) {
  const auto outage = ++c.outages[side];
  schedule_.after(random_.between(terms_.silence_min, terms_.silence_max), no_process,
                  [this, &c, side, outage] {
                    if (outage != c.outages[side] || !silent(c, side)) return;
                    if (schedule_.alive(c.ends[side]) && !schedule_.frozen(c.ends[side]))
                      close(c, side, caf::make_error(caf::exit_reason::remote_link_unreachable));
                  });
}

void network::died(process_id p, bool lose) {
  std::erase_if(listeners_, [p](const auto& x) { return x.second.first == p; });
  const auto why = caf::make_error(caf::exit_reason::remote_link_unreachable);
  for (auto& [id, c] : connections_)
    for (std::size_t side : {0, 1}) {
      if (c->ends[side] != p) continue;
      close(*c, side, why);
      if (lose) c->out[side].waiting.clear();
      // Its machine's kernel says so, after what it had sent, if the way is open.
      auto& other = *c;
      push(c->out[side], p, c->ends[1 - side],
           [this, &other, side, why] { close(other, 1 - side, why); });
      watch_silence(*c, 1 - side);
    }
  for (auto& [ends, lane] : lanes_)
    if (ends.second == p || (ends.first == p && lose)) lane.waiting.clear();
}

std::chrono::nanoseconds network::latency(process_id from, process_id to) {
  return hosts_.at(from) == hosts_.at(to) ? random_.between(terms_.local_min, terms_.local_max)
                                          : random_.between(terms_.remote_min, terms_.remote_max);
}

void network::carry(process_id from, process_id to, std::function<void()> deliver) {
  push(lanes_[{from, to}], from, to, std::move(deliver));
}

void network::push(pipe& p, process_id from, process_id to, std::function<void()> deliver) {
  p.last = std::max(p.last, schedule_.now() + latency(from, to));
  p.waiting.emplace_back(p.last, std::move(deliver));
  drain(p, from, to);
}

/// Arranges for the next delivery; one at a time, so that order is kept.
void network::drain(pipe& p, process_id from, process_id to) {
  if (p.arranged || p.waiting.empty() || is_cut(from, to)) return;
  p.arranged = true;
  schedule_.at(p.waiting.front().first, no_process, [this, &p, from, to] {
    p.arranged = false;
    const auto t = schedule_.now();
    while (!p.waiting.empty() && p.waiting.front().first <= t && !is_cut(from, to)) {
      auto next = std::move(p.waiting.front().second);
      p.waiting.pop_front();
      next();
    }
    drain(p, from, to);
  });
}

void network::flush_ways() {
  for (auto& [id, c] : connections_)
    for (std::size_t side : {0, 1}) drain(c->out[side], c->ends[side], c->ends[1 - side]);
  for (auto& [ends, lane] : lanes_) drain(lane, ends.first, ends.second);
}

}  // namespace troupe::sim
