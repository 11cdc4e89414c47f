#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>

namespace troupe::request {

/// From here on a prompt is tried alone. A crash adds 1 / (those at hand) to each of them.
inline constexpr double suspicion_alone = 0.5;
/// The same after so many crashes, however many were at hand each time: among hundreds of streams
/// the one that crashes engines would need hundreds of them to be found by its share.
inline constexpr std::uint32_t crashes_alone = 2;

/// What has been seen of one prompt and crashing engines. Pure.
///
/// Most suspects are innocent: they were only near. So suspicion ends when an attempt gets well
/// past the point where the engine crashed, and nothing but a crash while alone convicts.
class suspicion {
 public:
  enum class verdict : std::uint8_t {
    together,   ///< it may go on beside others
    alone,      ///< it goes on in steps of its own
    convicted,  ///< it crashed an engine alone
  };
  /// An engine crashed in an attempt at this prompt; `suspects` prompts were at hand, and this
  /// attempt ran alone, or not.
  verdict crashed(std::uint32_t suspects, bool alone) {
    if (alone && suspects <= 1) return verdict::convicted;
    sum_ += 1.0 / (suspects == 0 ? 1 : suspects);
    ++crashes_;
    return must_be_alone() ? verdict::alone : verdict::together;
  }
  bool must_be_alone() const { return sum_ >= suspicion_alone || crashes_ >= crashes_alone; }
  bool any() const { return crashes_ > 0; }
  /// An attempt has passed where the last one ended with its engine.
  void survived() { *this = {}; }

 private:
  double sum_ = 0;
  std::uint32_t crashes_ = 0;
};

/// Convicted content is refused for so long.
inline constexpr std::chrono::milliseconds poison_refused_for{600'000};
/// Different contents that are refused at once; above it that which would be forgotten next is.
inline constexpr std::size_t poison_fingerprints_max = 1'024;

/// Which content is refused, by fingerprint, and until when. Pure.
class poison_list {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  /// Refused for `how_long`, at most `poison_refused_for`.
  void add(std::uint64_t fingerprint, std::chrono::milliseconds how_long, time_point now);
  /// How much longer it is refused; 0: it is not.
  std::chrono::milliseconds refused_for(std::uint64_t fingerprint, time_point now) const;
  /// Cheap: whether anything may be refused.
  bool empty() const { return until_.empty(); }
  void forget_old(time_point now);
  std::size_t size() const { return until_.size(); }

 private:
  std::map<std::uint64_t, time_point> until_;
};

}  // namespace troupe::request
