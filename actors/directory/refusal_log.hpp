#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

namespace troupe::directory {

/// Decides which refused links are logged. Whoever reaches the link port can be refused as often
/// and in as many words as it likes, and the words are partly its own: each is said once in a
/// period, only so many are, and they are cut. Pure.
class refusal_log {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::hours period{1};
  /// Different ones in a period; what comes on top is not logged.
  static constexpr std::size_t refusals_max = 64;
  static constexpr std::size_t text_bytes_max = 512;

  enum class verdict : std::uint8_t {
    log,       ///< a new one
    quiet,     ///< known, or one too many
    overflow,  ///< the first one too many: to be said of all that follow
  };

  verdict hear(std::string_view text, time_point now) {
    if (now - since_ >= period) {
      since_ = now;
      known_.clear();
      overflowed_ = false;
    }
    auto words = shown(text);
    if (known_.contains(words)) return verdict::quiet;
    if (known_.size() < refusals_max) {
      known_.insert(std::move(words));
      return verdict::log;
    }
    if (overflowed_) return verdict::quiet;
    overflowed_ = true;
    return verdict::overflow;
  }

  /// A stranger's words as they may stand in a log: one line, not too long.
  static std::string shown(std::string_view text) {
    std::string out{text.substr(0, text_bytes_max)};
    for (auto& c : out)
      if (static_cast<unsigned char>(c) < ' ') c = ' ';
    return out;
  }

 private:
  time_point since_{};
  std::set<std::string> known_;
  bool overflowed_ = false;
};

}  // namespace troupe::directory
