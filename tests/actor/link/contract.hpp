#pragma once

// What a link promises, whatever carries it. `contract_test.cpp` has the tests; each program that
// is made of it brings a `make_scene`: wires within one process, or CAF's, with or without a third
// process in between.

#include "actors/link/link_actor.hpp"

#include <caf/actor_system.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace troupe::link::contract {

using std::chrono::milliseconds;

/// Nothing takes that long when all is well.
inline constexpr milliseconds patience{30'000};
/// A peer that is silent for `link_timing::silence_max` is found at the next ping; this is the time
/// that is promised (for a host that is cut off, too).
inline constexpr milliseconds noticed_within{6'000};

/// What actors have written, for a test that reads it. Thread-safe.
template <class T>
class kept {
 public:
  void add(T x) {
    const std::lock_guard lock{mutex_};
    all_.push_back(std::move(x));
  }
  std::vector<T> all() const {
    const std::lock_guard lock{mutex_};
    return all_;
  }
  std::size_t size() const {
    const std::lock_guard lock{mutex_};
    return all_.size();
  }
  void clear() {
    const std::lock_guard lock{mutex_};
    all_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<T> all_;
};

/// What the owner of a process's links heard.
struct news {
  kept<link_up> ups;
  kept<link_down> downs;
  kept<link_refused> refusals;
};

/// What came to one name. A parcel as a whole comes to whom a route takes for a link.
struct inbox {
  caf::actor actor;
  std::shared_ptr<kept<std::pair<origin, std::string>>> got =
      std::make_shared<kept<std::pair<origin, std::string>>>();
  std::shared_ptr<kept<msg::parcel>> parcels = std::make_shared<kept<msg::parcel>>();

  std::vector<std::string> texts() const;
};

/// A message with a text in it.
msg::envelope<msg::Goodbye> text(const std::string& what);

/// One process, as far as links know it.
class side {
 public:
  side(caf::actor_system& in, const std::string& host, std::uint8_t process,
       const std::string& cluster = "c");
  side(const side&) = delete;
  side& operator=(const side&) = delete;

  inbox receiver();
  inbox bind(const std::string& name, std::uint64_t generation);
  std::shared_ptr<const link_context> shared() const {
    return std::make_shared<const link_context>(context);
  }
  /// Ends all that was started here, and all links.
  std::vector<caf::actor> everybody() const;
  void end();

  caf::actor_system& system;
  std::shared_ptr<post_office> office = std::make_shared<post_office>();
  std::shared_ptr<news> heard = std::make_shared<news>();
  link_context context;
  std::vector<caf::actor> actors;
};

struct both_ends {
  link_up a, b;
};

/// Two processes and what is between them.
class scene {
 public:
  scene(side& first, side& second) : a(first), b(second) {}
  virtual ~scene() = default;
  scene(const scene&) = delete;
  scene& operator=(const scene&) = delete;

  /// Host a connects to host b. After a loss: they come together again, by this or by themselves.
  virtual void connect() = 0;
  /// What this process says from now on does not arrive. It may come later, if at all.
  virtual void cut(const side& speaker) = 0;
  virtual void mend() = 0;
  virtual void pass(milliseconds time) = 0;
  /// Goes on until it is true; false: it was not within this time.
  virtual bool until(const std::function<bool()>& condition, milliseconds at_most) = 0;

  /// `connect`, and the new links. The test fails where none comes up.
  both_ends link();

  side& a;
  side& b;
};

/// `cluster_of_a`: of another cluster than "c", host a is refused.
std::unique_ptr<scene> make_scene(const std::string& cluster_of_a = "c");

}  // namespace troupe::link::contract
