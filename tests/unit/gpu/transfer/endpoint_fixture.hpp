#pragma once

#include "gpu/transfer/ucx/library.hpp"
#include "gpu/transfer/ucx/ucx_backend.hpp"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace troupe::transfer::testing {

/// How long a test waits for what must come. Reached only when it has failed.
inline constexpr std::chrono::seconds patience_s{20};

/// Before Catch2 sets its own signal handlers, so that it doesn't keep UCX's as the ones to go back
/// to.
inline const bool library_is_prepared = (ucx::prepare_library(), true);

/// Fills with a pattern that differs in each word and for each seed.
inline void fill(std::span<std::byte> bytes, std::uint64_t seed) {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15U + 1;
  for (std::size_t i = 0; i < bytes.size(); i += sizeof x) {
    x = x * 6364136223846793005U + 1442695040888963407U;
    const auto word = x ^ (x >> 29U);
    std::memcpy(bytes.data() + i, &word, std::min(sizeof word, bytes.size() - i));
  }
}

inline bool holds(std::span<const std::byte> bytes, std::uint64_t seed) {
  std::vector<std::byte> expected(bytes.size());
  fill(expected, seed);
  return std::memcmp(expected.data(), bytes.data(), bytes.size()) == 0;
}

/// Records what a backend says; tests wait for it.
class recorder : public events {
 public:
  struct control {
    peer_id from;
    std::string text;
  };
  struct offer {
    peer_id from;
    piece_tag tag;
    std::size_t size;
    std::uint64_t number;
  };
  struct loss {
    peer_id peer;
    error why;
  };

  void on_control(peer_id from, std::span<const std::byte> bytes) override {
    add([&] {
      controls.push_back({from, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
    });
  }
  void on_offer(peer_id from, piece_tag tag, std::size_t size, std::uint64_t number) override {
    add([&] { offers.push_back({from, tag, size, number}); });
  }
  void on_peer_lost(peer_id peer, const error& why) override {
    add([&] { losses.push_back({peer, why}); });
  }
  completion note(std::string name) {
    return [this, name](outcome o) { add([&] { outcomes[name] = std::move(o); }); };
  }

  template <class Predicate>
  bool wait(Predicate until, std::chrono::milliseconds at_most = patience_s) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, at_most, until);
  }
  template <class Function>
  auto locked(Function read) {
    std::lock_guard lock(mutex);
    return read();
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<control> controls;
  std::deque<offer> offers;
  std::vector<loss> losses;
  std::map<std::string, outcome> outcomes;

 private:
  void add(const std::function<void()>& change) {
    std::lock_guard lock(mutex);
    change();
    changed.notify_all();
  }
};

/// A backend with its recorder.
struct endpoint {
  recorder seen;
  std::unique_ptr<backend> transport;

  explicit endpoint(const ucx::options& how = {}) {
    auto made = ucx::make_backend(how, seen);
    if (!made) throw std::runtime_error(made.error().message);
    transport = *std::move(made);
  }
  std::unique_ptr<region> memory(std::size_t bytes) {
    auto made = transport->allocate(bytes, memory_kind::host);
    if (!made) throw std::runtime_error(made.error().message);
    return *std::move(made);
  }
};

inline std::span<const std::byte> text_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace troupe::transfer::testing
