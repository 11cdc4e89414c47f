#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

namespace troupe::sim {

using time_point = std::chrono::steady_clock::time_point;

/// What happened in a run: a hash over every event, and, when asked for, lines that a person can
/// read.
class history {
 public:
  explicit history(bool readable) : readable_(readable) {}

  /// Everything that the order of things depends on goes in here.
  void note(time_point at, std::uint64_t what, std::uint64_t who = 0) {
    mix(static_cast<std::uint64_t>(at.time_since_epoch().count()));
    mix(what);
    mix(who);
    ++events_;
  }
  /// `line`: makes the text; only called when somebody reads it.
  template <class Line>
  void tell(time_point at, std::string_view subject, Line&& line) {
    std::uint64_t text = 0xCBF29CE484222325ULL;  // FNV-1a
    for (const char c : subject) text = (text ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
    note(at, text);
    if (readable_) lines_.push_back({at, std::string{subject}, line()});
  }

  bool readable() const { return readable_; }
  std::uint64_t hash() const { return hash_; }
  std::uint64_t events() const { return events_; }

  struct entry {
    time_point at;
    std::string subject;  ///< the process or request that it is about
    std::string text;
  };
  const std::vector<entry>& lines() const { return lines_; }

 private:
  void mix(std::uint64_t x) {
    hash_ = (hash_ ^ x) * 0x9E3779B97F4A7C15ULL;
    hash_ ^= hash_ >> 29U;
  }

  bool readable_;
  std::uint64_t hash_ = 0x5DEECE66DULL;
  std::uint64_t events_ = 0;
  std::vector<entry> lines_;
};

}  // namespace troupe::sim
