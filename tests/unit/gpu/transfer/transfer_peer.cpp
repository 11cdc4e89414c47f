// The other process of the two-process tests: does what it reads from standard input, says what
// happened on standard output, a line each.
//
//   connect ADDRESS local|network     in hexadecimal
//   send COUNT BYTES                  pieces with transfer = 1, 2, ...; filled with that number as
//   seed; 4 at a time take | ignore                     receive what is offered and check it, or
//   leave it; `take` at the start quit
#include "tests/unit/gpu/transfer/endpoint_fixture.hpp"

#include <cstdio>
#include <iostream>
#include <sstream>

using namespace troupe::transfer;
using namespace troupe::transfer::testing;

namespace {

constexpr std::size_t buffer_bytes = 8U << 20U;
constexpr std::size_t ring = 4;

std::string to_hex(const std::vector<std::byte>& bytes) {
  std::string out;
  char two[3];
  for (auto b : bytes) {
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(b));
    out += two;
  }
  return out;
}

std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> out;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    out.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return out;
}

void say(const std::string& line) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  std::cout << line << std::endl;
}

/// Takes every offer into a ring of buffers, or none.
class peer_events final : public events {
 public:
  backend* transport = nullptr;
  std::unique_ptr<region> memory;
  std::atomic<bool> take{true};

  void on_control(peer_id, std::span<const std::byte> bytes) override {
    say("control " + std::to_string(bytes.size()));
  }
  void on_peer_lost(peer_id, const troupe::error& why) override { say("lost " + why.code); }
  void on_offer(peer_id, piece_tag tag, std::size_t size, std::uint64_t offer) override {
    if (!take) return say("offered " + std::to_string(tag.transfer));
    auto into = memory->bytes().subspan((next_++ % ring) * buffer_bytes, size);
    transport->receive(offer, into, [into, tag](const outcome& how) {
      say(std::string(how.ok && holds(into, tag.transfer) ? "received " : "broken ") +
          std::to_string(tag.transfer));
    });
  }

 private:
  std::size_t next_ = 0;
};

}  // namespace

int main() {
  peer_events seen;
  auto made = ucx::make_backend(
      {.local_tls = "posix,cma", .network_tls = "tcp", .net_devices = "lo"}, seen);
  if (!made) {
    std::cerr << made.error().message << "\n";
    return 1;
  }
  auto transport = *std::move(made);
  seen.transport = transport.get();
  seen.memory = *transport->allocate(ring * buffer_bytes, memory_kind::host);
  auto source = *transport->allocate(ring * buffer_bytes, memory_kind::host);
  say("address " + to_hex(transport->local_address()));

  peer_id peer{};
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t busy = 0;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "connect") {
      std::string address;
      std::string where;
      words >> address >> where;
      peer = *transport->connect(from_hex(address),
                                 where == "local" ? proximity::same_host : proximity::other_host);
    } else if (command == "take" || command == "ignore") {
      seen.take = command == "take";
      say("will " + command);
    } else if (command == "send") {
      std::size_t count = 0;
      std::size_t size = 0;
      words >> count >> size;
      for (std::size_t i = 1; i <= count; ++i) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return busy < ring; });
        // In order of completion, so that a free slot is the oldest.
        auto bytes = source->bytes().subspan((i % ring) * buffer_bytes, size);
        fill(bytes, i);
        ++busy;
        transport->send(peer, {.transfer = i}, bytes, [&, i](const outcome& how) {
          std::lock_guard inner(mutex);
          --busy;
          changed.notify_all();
          say((how.ok ? "sent " : "unsent ") + std::to_string(i));
        });
      }
    } else if (command == "quit") {
      break;
    }
  }
  std::unique_lock lock(mutex);
  changed.wait_for(lock, std::chrono::seconds(5), [&] { return busy == 0; });
  lock.unlock();
  transport.reset();
}
