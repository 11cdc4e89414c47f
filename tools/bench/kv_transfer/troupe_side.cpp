#include "gpu/transfer/ucx/ucx_backend.hpp"
#include "tools/bench/kv_transfer/measure.hpp"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <stdexcept>

namespace troupe::bench {

namespace {

using namespace transfer;

std::unique_ptr<backend> open(events& sink) {
  auto made = ucx::make_backend(
      {.local_tls = "posix,cma", .network_tls = "tcp", .net_devices = "lo"}, sink);
  if (!made) throw std::runtime_error(made.error().message);
  return *std::move(made);
}

std::unique_ptr<region> memory(backend& transport, const setting& s) {
  auto made = transport.allocate(s.slots() * s.piece_bytes, memory_kind::host);
  if (!made) throw std::runtime_error(made.error().message);
  std::memset((*made)->bytes().data(), 1, (*made)->bytes().size());
  return *std::move(made);
}

struct silent : events {
  void on_control(peer_id, std::span<const std::byte>) override {}
  void on_offer(peer_id, piece_tag, std::size_t, std::uint64_t) override {}
  void on_peer_lost(peer_id, const error&) override {}
};

struct taking final : silent {
  backend* transport = nullptr;
  region* into = nullptr;
  const setting* how = nullptr;
  std::size_t next = 0;

  void on_offer(peer_id, piece_tag, std::size_t size, std::uint64_t offer) override {
    const auto slot = next++ % how->slots();
    transport->receive(offer, into->bytes().subspan(slot * how->piece_bytes, size),
                       [](const outcome&) {});
  }
};

/// Keeps `outstanding` sends on their way.
class pump {
 public:
  pump(backend& transport, peer_id peer, region& from, const setting& how)
      : transport_(transport), peer_(peer), from_(from), how_(how) {}

  /// Whether all arrived.
  bool run(std::size_t pieces) {
    std::unique_lock lock(mutex_);
    left_ = pieces;
    for (std::size_t i = 0; i < std::min(outstanding, pieces); ++i) post();
    changed_.wait(lock, [&] { return (left_ == 0 || failed_) && under_way_ == 0; });
    return !failed_;
  }

 private:
  void post() {
    --left_;
    ++under_way_;
    const auto slot = next_++ % how_.slots();
    transport_.send(peer_, {.transfer = next_},
                    from_.bytes().subspan(slot * how_.piece_bytes, how_.piece_bytes),
                    [this](const outcome& o) {
                      std::lock_guard lock(mutex_);
                      --under_way_;
                      failed_ |= !o.ok;
                      if (left_ > 0 && !failed_)
                        post();
                      else if (under_way_ == 0)
                        changed_.notify_one();
                    });
  }

  backend& transport_;
  peer_id peer_;
  region& from_;
  const setting& how_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t left_ = 0;
  std::size_t under_way_ = 0;
  std::size_t next_ = 0;
  bool failed_ = false;
};

}  // namespace

std::optional<double> measure_troupe(const setting& s) {
  auto receive = [&](int fd) {
    taking sink;
    auto transport = open(sink);
    auto into = memory(*transport, s);
    sink.transport = transport.get();
    sink.into = into.get();
    sink.how = &s;
    put(fd, transport->local_address());
    get(fd);  // the sender is done
  };
  auto send = [&](int fd) -> std::optional<double> {
    silent sink;
    auto transport = open(sink);
    auto from = memory(*transport, s);
    auto peer = transport->connect(get(fd), s.where);
    if (!peer) throw std::runtime_error(peer.error().message);
    pump sending(*transport, *peer, *from, s);
    std::optional<double> speed;
    if (sending.run(warm_up)) {
      if (transport->transports(*peer).find(s.where == proximity::same_host ? "posix" : "tcp") ==
          std::string::npos)
        throw std::runtime_error("UCX chose another transport: " + transport->transports(*peer));
      const auto begin = std::chrono::steady_clock::now();
      if (sending.run(s.pieces())) {
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        speed = static_cast<double>(s.pieces() * s.piece_bytes) / (1U << 20U) / took.count();
      }
    }
    put(fd, std::vector<std::byte>(1));
    return speed;
  };
  return in_two_processes(receive, send);
}

}  // namespace troupe::bench
