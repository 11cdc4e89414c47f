#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::text {

/// A template's own stop strings and a client's.
std::vector<std::string> joined(std::span<const std::string> a, std::span<const std::string> b);

/// Watches a text for stop strings while it grows. Text that may still become a stop string is held
/// back; the stop that is complete first ends the text (of those that end at the same byte, the
/// longest). How the text was cut never changes the result. Time per byte is constant on average
/// (Knuth–Morris–Pratt, one automaton per stop). A value type; thread-compatible.
class stop_matcher {
 public:
  struct result {
    std::string text;  ///< for the client, in front of the stop string
    bool stopped = false;
    std::string stop_text;  ///< the stop string that ended it
  };

  /// Empty strings are left out: they would stop everything.
  explicit stop_matcher(std::vector<std::string> stops);

  /// Text should come in whole characters, so that what is held back begins at a character. After a
  /// stop everything more is swallowed.
  result push(std::string_view text);
  /// The end: what was held back; nothing after a stop.
  std::string finish();

  std::size_t held_bytes() const { return held_.size(); }
  bool stopped() const { return stopped_; }

 private:
  struct automaton {
    std::string stop;
    std::vector<std::size_t> fallback;  ///< [i]: longest proper border of the first i bytes
    std::size_t matched = 0;
  };

  static void advance(automaton& a, char byte);

  std::vector<automaton> automata_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace troupe::text
