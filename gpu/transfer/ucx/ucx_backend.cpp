#include "gpu/transfer/ucx/ucx_backend.hpp"

#include "gpu/transfer/ucx/command_queue.hpp"
#include "gpu/transfer/ucx/core.hpp"

#include <poll.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <random>
#include <thread>
#include <utility>

namespace troupe::transfer::ucx {

namespace {

/// How long the progress thread spins after the last event while something is under way: about what
/// a sleep and a wake-up cost.
constexpr std::chrono::microseconds spin_after_event_us{30};

/// The longest sleeps. UCX announces what comes by descriptor, except some steps of its own
/// connecting: those are looked for a little later.
constexpr int sleep_busy_ms = 2;
constexpr int sleep_idle_ms = 100;

/// How long an orderly end waits for connections to close.
constexpr std::chrono::milliseconds close_wait_ms{500};

class registered_region final : public region {
 public:
  registered_region(std::shared_ptr<registered_memory> memory, std::shared_ptr<memory_table> table)
      : memory_(std::move(memory)), table_(std::move(table)) {
    table_->add(memory_);
  }
  ~registered_region() override { table_->remove(*memory_); }
  std::span<std::byte> bytes() override { return memory_->bytes(); }
  memory_kind kind() const override { return memory_kind::host; }

 private:
  std::shared_ptr<registered_memory> memory_;
  std::shared_ptr<memory_table> table_;
};

std::array<lane_options, lane_count> lanes_of(const options& how) {
  const char* environment = std::getenv("UCX_TLS");
  auto choose = [&](const std::string& chosen, const char* usual) {
    return !chosen.empty() ? chosen : environment != nullptr ? environment : usual;
  };
  return {lane_options{choose(how.local_tls, "posix,sysv,cma"), how.net_devices, {}},
          lane_options{choose(how.network_tls, "^posix,sysv,cma,self"), how.net_devices,
                       how.listen_address}};
}

class ucx_backend final : public backend {
 public:
  explicit ucx_backend(events& sink)
      : core_(sink, shared_, *memory_,
              [this](std::function<void()> work) { commands_.post(std::move(work)); }) {}

  ~ucx_backend() override {
    if (!thread_.joinable()) return;
    commands_.post([this] { stop_ = true; });
    thread_.join();
  }

  expected<void> open(const options& how) {
    std::random_device device;
    const auto instance = (static_cast<std::uint64_t>(device()) << 32U) | device();
    if (auto opened = core_.open(lanes_of(how), instance); !opened) return opened;
    address_ = core_.local_address();
    contexts_ = core_.contexts();
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "kv-transfer");
      run();
    });
    return ok;
  }

  std::string name() const override { return "ucx"; }
  std::vector<std::byte> local_address() const override { return address_; }

  expected<std::unique_ptr<region>> allocate(std::size_t bytes, memory_kind kind) override {
    if (kind != memory_kind::host)
      return error{"unsupported_memory", "this UCX backend registers host memory only"};
    auto memory = registered_memory::map(bytes, contexts_);
    if (!memory) return std::move(memory).error();
    return std::unique_ptr<region>(
        std::make_unique<registered_region>(*std::move(memory), memory_));
  }

  expected<peer_id> connect(std::span<const std::byte> bytes, proximity where) override {
    auto address = decode_address(bytes);
    if (!address) return std::move(address).error();
    const auto kind = lane_for(where);
    if (address->lane(kind).empty() || !contexts_[static_cast<std::size_t>(kind)])
      return error{"peer_unreachable",
                   "the two workers have no UCX transport in common for this distance"};
    peer_id id{};
    {
      std::lock_guard lock(shared_.mutex);
      for (auto& [known, entry] : shared_.peers)
        if (entry.outgoing && !entry.lost && entry.instance == address->instance &&
            entry.kind == kind)
          return peer_id{known};
      id = peer_id{shared_.next_peer++};
      shared_.peers.try_emplace(static_cast<std::uint64_t>(id), address->instance, kind, true);
    }
    commands_.post(
        [this, id, kind, address = *std::move(address)] { core_.connect(id, address, kind); });
    return id;
  }

  std::vector<peer_id> peers_at(std::span<const std::byte> bytes) const override {
    std::vector<peer_id> found;
    if (auto address = decode_address(bytes)) {
      std::lock_guard lock(shared_.mutex);
      for (auto& [known, entry] : shared_.peers)
        if (entry.instance == address->instance) found.push_back(peer_id{known});
    }
    return found;
  }

  void disconnect(peer_id peer, bool certainly_dead) override {
    {
      // At once: what asks for a connection next gets another one.
      std::lock_guard lock(shared_.mutex);
      if (auto known = shared_.peers.find(static_cast<std::uint64_t>(peer));
          known != shared_.peers.end())
        known->second.lost = true;
    }
    commands_.post([this, peer, certainly_dead] { core_.disconnect(peer, certainly_dead); });
  }

  expected<void> send_control(peer_id to, std::span<const std::byte> bytes) override {
    if (bytes.size() > control_bytes_max)
      return error{"control_too_large", "a control message exceeds its limit"};
    std::shared_ptr<std::atomic<std::size_t>> backlog;
    {
      std::lock_guard lock(shared_.mutex);
      auto found = shared_.peers.find(static_cast<std::uint64_t>(to));
      if (found == shared_.peers.end() || found->second.lost)
        return error{"peer_failed", "there is no KV connection to this peer any more"};
      backlog = found->second.backlog;
    }
    if (backlog->fetch_add(1) >= control_backlog_messages_max) {
      --*backlog;
      return error{"control_backlog", "too many control messages wait for this peer"};
    }
    commands_.post([this, to, backlog = std::move(backlog),
                    copy = std::vector<std::byte>(bytes.begin(), bytes.end())]() mutable {
      core_.send_control(to, std::move(copy), std::move(backlog));
    });
    return ok;
  }

  void send(peer_id to, piece_tag tag, std::span<const std::byte> bytes, completion done) override {
    commands_.post([this, to, tag, bytes, done = std::move(done)]() mutable {
      core_.send(to, tag, bytes, std::move(done));
    });
  }
  void receive(std::uint64_t offer, std::span<std::byte> into, completion done) override {
    commands_.post([this, offer, into, done = std::move(done)]() mutable {
      core_.receive(offer, into, std::move(done));
    });
  }
  void decline(std::uint64_t offer) override {
    commands_.post([this, offer] { core_.decline(offer); });
  }

  wire_counters counters() const override {
    return {shared_.sent_bytes,    shared_.received_bytes,  shared_.control_bytes,
            shared_.pieces_sent,   shared_.pieces_received, rounds_,
            shared_.device_changed};
  }

  std::string transports(peer_id peer) const override {
    auto* self = const_cast<ucx_backend*>(this);  // asks the progress thread, changes nothing
    if (std::this_thread::get_id() == thread_.get_id()) return self->core_.transports(peer);
    std::promise<std::string> answer;
    auto arrived = answer.get_future();
    self->commands_.post([self, peer, &answer] { answer.set_value(self->core_.transports(peer)); });
    return arrived.get();
  }

 private:
  void run() {
    using clock = std::chrono::steady_clock;
    auto last_event = clock::now();
    while (!stop_) {
      rounds_.fetch_add(1, std::memory_order_relaxed);
      bool worked = commands_.run();
      worked |= core_.progress();
      if (worked) {
        last_event = clock::now();
        continue;
      }
      if (core_.busy() && clock::now() - last_event < spin_after_event_us) continue;
      sleep();
    }
    core_.begin_shut_down();
    for (const auto until = clock::now() + close_wait_ms; !core_.over() && clock::now() < until;) {
      commands_.run();
      core_.progress();
    }
    core_.end_shut_down();
    commands_.run();  // late calls find no peer and end as `peer_failed`
  }

  void sleep() {
    std::array<pollfd, lane_count + 1> watched{};
    nfds_t count = 0;
    watched[count++] = {commands_.wake_fd(), POLLIN, 0};
    for (auto* lane : core_.lanes()) {
      if (lane == nullptr) continue;
      if (!lane->arm()) return;
      watched[count++] = {lane->wake_fd(), POLLIN, 0};
    }
    if (!commands_.prepare_sleep()) return;
    ::poll(watched.data(), count, core_.busy() ? sleep_busy_ms : sleep_idle_ms);
    commands_.awake();
  }

  std::shared_ptr<memory_table> memory_ = std::make_shared<memory_table>();
  mutable shared_state shared_;
  core core_;
  command_queue commands_;
  std::vector<std::byte> address_;
  std::array<shared_context, lane_count> contexts_;
  std::atomic<std::uint64_t> rounds_{1};
  bool stop_ = false;  // progress thread only
  std::thread thread_;
};

}  // namespace

expected<std::unique_ptr<backend>> make_backend(const options& how, events& sink) {
  auto made = std::make_unique<ucx_backend>(sink);
  if (auto opened = made->open(how); !opened) return std::move(opened).error();
  return std::unique_ptr<backend>(std::move(made));
}

}  // namespace troupe::transfer::ucx
