#include "apps/sim/kv_lane.hpp"

#include <deque>
#include <utility>

namespace troupe::sim {

namespace {

/// Of memory and network alike: KV of a whole prompt takes milliseconds.
constexpr std::chrono::nanoseconds time_per_kibibyte{1'000};

}  // namespace

/// One worker's end. What the fabric does at once takes its way over the wires here; completions
/// and events run in the worker's process.
class kv_lane final : public transfer::backend, public transfer::events {
 public:
  kv_lane(kv_network& net, process_id p, transfer::events& sink)
      : net_(net), process_(p), sink_(&sink), inner_(net.fabric_.join(*this)) {
    net_.members_[inner_->local_address()] = p;
  }
  ~kv_lane() override {
    *here_ = false;
    inner_.reset();
  }

  // -- backend -------------------------------------------------------------------
  std::string name() const override { return inner_->name(); }
  std::vector<std::byte> local_address() const override { return inner_->local_address(); }
  expected<std::unique_ptr<transfer::region>> allocate(std::size_t bytes,
                                                       transfer::memory_kind kind) override {
    return inner_->allocate(bytes, kind);
  }
  expected<transfer::peer_id> connect(std::span<const std::byte> address,
                                      transfer::proximity where) override {
    auto made = inner_->connect(address, where);
    if (made) peers_[*made] = net_.process_at(address);
    return made;
  }
  std::vector<transfer::peer_id> peers_at(std::span<const std::byte> address) const override {
    return inner_->peers_at(address);
  }
  void disconnect(transfer::peer_id peer, bool certainly_dead) override {
    if (dead()) return;
    inner_->disconnect(peer, certainly_dead);
    net_.pump_soon();
  }
  expected<void> send_control(transfer::peer_id to, std::span<const std::byte> bytes) override {
    if (dead()) return error{"peer_failed", "this process has ended"};
    auto sent = inner_->send_control(to, bytes);
    net_.pump_soon();
    return sent;
  }
  void send(transfer::peer_id to, transfer::piece_tag tag, std::span<const std::byte> bytes,
            transfer::completion done) override {
    if (dead()) return;
    inner_->send(to, tag, bytes, in_process(std::move(done)));
    net_.pump_soon();
  }
  void receive(std::uint64_t offer, std::span<std::byte> into, transfer::completion done) override {
    if (dead()) return;
    const auto time = time_per_kibibyte * (into.size() / 1'024 + 1);
    net_.schedule_.after(time, process_,
                         [this, here = here_, offer, into, done = in_process(std::move(done))] {
                           if (!*here) return;
                           inner_->receive(offer, into, done);
                           net_.pump_soon();
                         });
    // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks): a lambda's std::function is no leak
  }
  void decline(std::uint64_t offer) override {
    if (dead()) return;
    inner_->decline(offer);
    net_.pump_soon();
  }
  transfer::wire_counters counters() const override { return inner_->counters(); }
  std::string transports(transfer::peer_id peer) const override { return inner_->transports(peer); }

  // -- events, from the fabric -------------------------------------------------------
  void on_control(transfer::peer_id from, std::span<const std::byte> bytes) override {
    over_the_wire(from, [this, from, copy = std::vector<std::byte>(bytes.begin(), bytes.end())] {
      if (net_.on_control) net_.on_control(copy);
      sink_->on_control(from, copy);
    });
  }
  void on_offer(transfer::peer_id from, transfer::piece_tag tag, std::size_t size,
                std::uint64_t offer) override {
    over_the_wire(from,
                  [this, from, tag, size, offer] { sink_->on_offer(from, tag, size, offer); });
  }
  void on_peer_lost(transfer::peer_id peer, const error& why) override {
    over_the_wire(peer, [this, peer, why] { sink_->on_peer_lost(peer, why); });
  }

 private:
  bool dead() const { return !net_.schedule_.alive(process_); }

  transfer::completion in_process(transfer::completion done) {
    return [this, here = here_, done = std::move(done)](const transfer::outcome& how) {
      if (*here) progress([done, how] { done(how); });
    };
  }

  /// What the transport's thread does: one thing at a time, in order.
  void progress(std::function<void()> what) {
    to_do_.push_back(std::move(what));
    net_.schedule_.soon(process_, [this, here = here_] {
      if (!*here) return;
      auto next = std::move(to_do_.front());
      to_do_.pop_front();
      next();
    });
  }

  void over_the_wire(transfer::peer_id from, std::function<void()> what) {
    net_.wires_.carry(process_of(from), process_, [this, here = here_, what = std::move(what)] {
      if (*here) progress(what);
    });
  }

  process_id process_of(transfer::peer_id peer) {
    if (auto known = peers_.find(peer); known != peers_.end()) return known->second;
    for (const auto& [address, process] : net_.members_)
      for (auto p : inner_->peers_at(address)) peers_[p] = process;
    auto known = peers_.find(peer);
    return known == peers_.end() ? process_ : known->second;
  }

  kv_network& net_;
  process_id process_;
  transfer::events* sink_;
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
  std::map<transfer::peer_id, process_id> peers_;
  std::deque<std::function<void()>> to_do_;
  std::unique_ptr<transfer::backend> inner_;
};

std::unique_ptr<transfer::backend> kv_network::join(process_id p, transfer::events& sink) {
  return std::make_unique<kv_lane>(*this, p, sink);
}

void kv_network::died(process_id p) {
  for (const auto& [a, member] : members_)
    if (member == p)
      fabric_.kill(a, [&](std::span<const std::byte> peer) {
        const auto other = process_at(peer);
        return other != no_process && wires_.host_of(other) == wires_.host_of(p);
      });
  pump_soon();
}

process_id kv_network::process_at(std::span<const std::byte> a) const {
  auto found = members_.find(address(a.begin(), a.end()));
  return found == members_.end() ? no_process : found->second;
}

/// The fabric's own work takes no time; what it brings about does.
void kv_network::pump_soon() {
  if (std::exchange(pump_due_, true)) return;
  schedule_.soon(no_process, [this] {
    pump_due_ = false;
    fabric_.pump();
  });
}

}  // namespace troupe::sim
