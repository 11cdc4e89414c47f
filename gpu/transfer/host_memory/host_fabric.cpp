#include "gpu/transfer/host_memory/host_fabric.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace troupe::transfer {

namespace {

class host_region final : public region {
 public:
  explicit host_region(std::size_t bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes() override { return bytes_; }
  memory_kind kind() const override { return memory_kind::host; }

 private:
  std::vector<std::byte> bytes_;
};

const error peer_is_gone{"peer_failed", "there is no connection to this peer any more"};

}  // namespace

/// One lock for the whole fabric; sinks and completions are called without it.
struct host_fabric::state {
  struct piece {
    std::uint64_t from = 0;  ///< worker
    peer_id from_peer{};     ///< as its sender knows the receiver
    std::span<const std::byte> bytes;
    completion done;
  };
  struct connection {
    std::uint64_t other = 0;  ///< worker
    peer_id theirs{};         ///< how it knows us
    bool outgoing = false;
    bool broken =
        false;  ///< the other died; kept until `disconnect`, or at once when everyone was told
  };
  struct worker {
    events* sink = nullptr;
    bool alive = true;
    std::map<std::uint64_t, connection> peers;  // by peer_id
    std::map<std::uint64_t, piece> offers;      // announced to this worker, not yet taken
    wire_counters counters;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> due;
  std::map<std::uint64_t, worker> workers;
  std::uint64_t next = 1;
  std::size_t failing = 0;
  bool over = false;
  std::thread pumper;

  void post(std::function<void()> task) {
    due.push_back(std::move(task));
    changed.notify_one();
  }
  worker* find(std::uint64_t id) {
    auto found = workers.find(id);
    return found == workers.end() || !found->second.alive ? nullptr : &found->second;
  }
  std::size_t pump(std::size_t steps);
  /// Ends one side of a connection; with the lock held.
  void lose(std::uint64_t id, peer_id peer, const error& why, bool tell);
};

std::size_t host_fabric::state::pump(std::size_t steps) {
  std::size_t done = 0;
  for (; done < steps; ++done) {
    std::function<void()> task;
    {
      std::lock_guard lock(mutex);
      if (due.empty()) break;
      task = std::move(due.front());
      due.pop_front();
    }
    task();
  }
  return done;
}

void host_fabric::state::lose(std::uint64_t id, peer_id peer, const error& why, bool tell) {
  auto* w = find(id);
  if (w == nullptr || w->peers.erase(static_cast<std::uint64_t>(peer)) == 0) return;
  // Our pieces that the other has not taken end now; what it announced to us is forgotten.
  for (auto& [other_id, other] : workers)
    for (auto at = other.offers.begin(); at != other.offers.end();) {
      const bool ours = at->second.from == id && at->second.from_peer == peer;
      if (ours) post([done = std::move(at->second.done), why] { done({false, 0, why}); });
      at = ours ? other.offers.erase(at) : std::next(at);
    }
  if (tell) post([sink = w->sink, peer, why] { sink->on_peer_lost(peer, why); });
}

class host_backend final : public backend {
 public:
  host_backend(std::shared_ptr<host_fabric::state> fabric, std::uint64_t id)
      : fabric_(std::move(fabric)), id_(id) {}

  ~host_backend() override {
    std::vector<std::pair<std::uint64_t, host_fabric::state::connection>> peers;
    {
      std::lock_guard lock(fabric_->mutex);
      auto& mine = fabric_->workers[id_];
      peers.assign(mine.peers.begin(), mine.peers.end());
    }
    for (auto& [peer, known] : peers) disconnect(peer_id{peer}, false);
    // What is due may call our sink: it runs before this returns, as a progress thread's join would
    // see to.
    fabric_->pump(SIZE_MAX);
    std::lock_guard lock(fabric_->mutex);
    fabric_->workers[id_].alive = false;
  }

  std::string name() const override { return "host"; }

  std::vector<std::byte> local_address() const override {
    std::vector<std::byte> bytes(sizeof id_);
    std::memcpy(bytes.data(), &id_, sizeof id_);
    return bytes;
  }

  expected<std::unique_ptr<region>> allocate(std::size_t bytes, memory_kind kind) override {
    if (kind != memory_kind::host)
      return error{"unsupported_memory", "this backend has host memory only"};
    return std::unique_ptr<region>(std::make_unique<host_region>(bytes));
  }

  expected<peer_id> connect(std::span<const std::byte> address, proximity) override {
    std::uint64_t other = 0;
    if (address.size() != sizeof other)
      return error{"peer_unreachable", "not an address of this fabric"};
    std::memcpy(&other, address.data(), sizeof other);
    std::lock_guard lock(fabric_->mutex);
    auto* target = fabric_->find(other);
    if (target == nullptr) return error{"peer_unreachable", "no worker has this address"};
    auto& mine = fabric_->workers[id_];
    for (auto& [peer, known] : mine.peers)
      if (known.other == other && known.outgoing && !known.broken) return peer_id{peer};
    const peer_id here{fabric_->next++};
    const peer_id there{fabric_->next++};
    mine.peers[static_cast<std::uint64_t>(here)] = {other, there, true, false};
    target->peers[static_cast<std::uint64_t>(there)] = {id_, here, false, false};
    return here;
  }

  std::vector<peer_id> peers_at(std::span<const std::byte> address) const override {
    std::vector<peer_id> found;
    std::uint64_t other = 0;
    if (address.size() != sizeof other) return found;
    std::memcpy(&other, address.data(), sizeof other);
    std::lock_guard lock(fabric_->mutex);
    for (auto& [peer, known] : fabric_->workers[id_].peers)
      if (known.other == other) found.push_back(peer_id{peer});
    return found;
  }

  void disconnect(peer_id peer, bool certainly_dead) override {
    std::lock_guard lock(fabric_->mutex);
    auto& mine = fabric_->workers[id_];
    auto found = mine.peers.find(static_cast<std::uint64_t>(peer));
    if (found == mine.peers.end()) return;
    const auto known = found->second;
    fabric_->lose(id_, peer,
                  certainly_dead ? error{"peer_failed", "the peer's process has ended"}
                                 : error{"cancelled", "the connection was closed here"},
                  certainly_dead);
    fabric_->lose(known.other, known.theirs, {"peer_left", "the peer closed the connection"}, true);
  }

  expected<void> send_control(peer_id to, std::span<const std::byte> bytes) override {
    if (bytes.size() > control_bytes_max)
      return error{"control_too_large", "a control message exceeds its limit"};
    std::lock_guard lock(fabric_->mutex);
    auto& mine = fabric_->workers[id_];
    auto found = mine.peers.find(static_cast<std::uint64_t>(to));
    if (found == mine.peers.end()) return peer_is_gone;
    mine.counters.control_bytes += bytes.size();
    fabric_->post([fabric = fabric_, known = found->second,
                   copy = std::vector<std::byte>(bytes.begin(), bytes.end())] {
      events* sink = nullptr;
      {
        std::lock_guard inner(fabric->mutex);
        if (auto* target = fabric->find(known.other);
            target != nullptr && target->peers.contains(static_cast<std::uint64_t>(known.theirs)))
          sink = target->sink;
      }
      if (sink != nullptr) sink->on_control(known.theirs, copy);
    });
    return ok;
  }

  void send(peer_id to, piece_tag tag, std::span<const std::byte> bytes, completion done) override {
    std::lock_guard lock(fabric_->mutex);
    auto& mine = fabric_->workers[id_];
    auto found = mine.peers.find(static_cast<std::uint64_t>(to));
    if (found == mine.peers.end())
      return fabric_->post([done = std::move(done)] { done({false, 0, peer_is_gone}); });
    const auto known = found->second;
    const auto offer = fabric_->next++;
    // A silently dead receiver never takes it: it waits there until `disconnect`.
    fabric_->workers[known.other].offers[offer] = {id_, to, bytes, std::move(done)};
    fabric_->post([fabric = fabric_, known, tag, offer, size = bytes.size()] {
      events* sink = nullptr;
      {
        std::lock_guard inner(fabric->mutex);
        if (auto* target = fabric->find(known.other);
            target != nullptr && target->offers.contains(offer))
          sink = target->sink;
      }
      if (sink != nullptr) sink->on_offer(known.theirs, tag, size, offer);
    });
  }

  void receive(std::uint64_t offer, std::span<std::byte> into, completion done) override {
    std::lock_guard lock(fabric_->mutex);
    fabric_->post([fabric = fabric_, id = id_, offer, into, done = std::move(done)] {
      std::unique_lock inner(fabric->mutex);
      auto& mine = fabric->workers[id];
      auto found = mine.offers.find(offer);
      if (found == mine.offers.end()) {
        inner.unlock();
        return done({false, 0, peer_is_gone});
      }
      auto taken = std::move(found->second);
      mine.offers.erase(found);
      outcome how{true, taken.bytes.size(), {}};
      if (into.size() < taken.bytes.size())
        how = {false, 0, {"truncated", "the buffer is smaller than the piece"}};
      else if (fabric->failing > 0)
        --fabric->failing, how = {false, 0, {"transport_failed", "a fault was asked for"}};
      if (how.ok) {
        std::memcpy(into.data(), taken.bytes.data(), taken.bytes.size());
        mine.counters.received_bytes += how.bytes;
        ++mine.counters.pieces_received;
        auto& sender = fabric->workers[taken.from];
        sender.counters.sent_bytes += how.bytes;
        ++sender.counters.pieces_sent;
      }
      inner.unlock();
      done(how);
      taken.done(how);
    });
  }

  void decline(std::uint64_t offer) override {
    std::lock_guard lock(fabric_->mutex);
    auto& mine = fabric_->workers[id_];
    auto node = mine.offers.extract(offer);
    if (node)
      fabric_->post([done = std::move(node.mapped().done)] {
        done({false, 0, {"declined", "the peer declined the piece"}});
      });
  }

  wire_counters counters() const override {
    std::lock_guard lock(fabric_->mutex);
    return fabric_->workers[id_].counters;
  }
  std::string transports(peer_id) const override { return "memory"; }

 private:
  std::shared_ptr<host_fabric::state> fabric_;
  std::uint64_t id_;
};

host_fabric::host_fabric() : state_(std::make_shared<state>()) {}

host_fabric::~host_fabric() {
  {
    std::lock_guard lock(state_->mutex);
    state_->over = true;
    state_->changed.notify_all();
  }
  if (state_->pumper.joinable()) state_->pumper.join();
}

std::unique_ptr<backend> host_fabric::join(events& sink) {
  std::lock_guard lock(state_->mutex);
  const auto id = state_->next++;
  state_->workers[id].sink = &sink;
  return std::make_unique<host_backend>(state_, id);
}

std::size_t host_fabric::pump(std::size_t steps) { return state_->pump(steps); }

void host_fabric::pump_in_background() {
  state_->pumper = std::thread([s = state_.get()] {
    for (;;) {
      {
        std::unique_lock lock(s->mutex);
        s->changed.wait(lock, [s] { return s->over || !s->due.empty(); });
        if (s->over) return;
      }
      s->pump(SIZE_MAX);
    }
  });
}

void host_fabric::kill(std::span<const std::byte> address, bool silently) {
  kill(address, [silently](std::span<const std::byte>) { return silently; });
}

void host_fabric::kill(std::span<const std::byte> address,
                       const std::function<bool(std::span<const std::byte>)>& silently) {
  std::uint64_t id = 0;
  if (address.size() != sizeof id) return;
  std::memcpy(&id, address.data(), sizeof id);
  std::lock_guard lock(state_->mutex);
  auto& dead = state_->workers[id];
  dead.alive = false;
  for (auto& [peer, known] : dead.peers) {
    if (silently(std::as_bytes(std::span{&known.other, 1}))) {
      if (auto* other = state_->find(known.other); other != nullptr)
        other->peers[static_cast<std::uint64_t>(known.theirs)].broken = true;
    } else {
      state_->lose(known.other, known.theirs, {"peer_failed", "the peer's process has ended"},
                   true);
    }
  }
}

void host_fabric::fail_pieces(std::size_t count) {
  std::lock_guard lock(state_->mutex);
  state_->failing = count;
}

}  // namespace troupe::transfer
