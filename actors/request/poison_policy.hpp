#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe::request {

/// From here on a prompt is tried alone. A crash, or a pass that failed or gave no numbers, adds 1
/// / (those at hand) to each of them.
inline constexpr double suspicion_alone = 0.5;
/// The same after so many crashes, however many were at hand each time: among hundreds of streams
/// the one that crashes engines would need hundreds of them to be found by its share.
inline constexpr std::uint32_t crashes_alone = 2;

/// What has been seen of one prompt and engines that crash or fail. Pure.
///
/// Most suspects are innocent: they were only near. So suspicion ends when an attempt gets well
/// past the point where the engine crashed or failed, and nothing but that while alone convicts:
/// one crash, or faults for which no single engine can be blamed. An engine that goes on after a
/// fault may be what is broken.
class suspicion {
 public:
  enum class verdict : std::uint8_t {
    together,   ///< it may go on beside others
    alone,      ///< it goes on in steps of its own
    convicted,  ///< it crashed an engine alone, or cannot be computed by any
  };
  /// An engine crashed in an attempt at this prompt; `suspects` prompts were at hand, and this
  /// attempt ran alone, or not.
  verdict crashed(std::uint32_t suspects, bool alone) {
    if (alone && suspects <= 1) return verdict::convicted;
    return count(suspects);
  }
  /// An engine failed an attempt at this prompt, with `suspects` in the same pass. `engines`: those
  /// whose fault it may be instead, at least one.
  verdict faulted(std::uint32_t suspects, bool alone, const std::vector<std::string>& engines);
  bool must_be_alone() const { return sum_ >= suspicion_alone || crashes_ >= crashes_alone; }
  bool any() const { return crashes_ > 0; }
  /// An attempt has passed where the last one ended with its engine.
  void survived() { *this = {}; }

 private:
  verdict count(std::uint32_t suspects) {
    sum_ += 1.0 / (suspects == 0 ? 1 : suspects);
    ++crashes_;
    return must_be_alone() ? verdict::alone : verdict::together;
  }

  double sum_ = 0;
  std::uint32_t crashes_ = 0;  ///< and faults
  /// Each of them could have caused all faults that came while alone; none yet: there were none.
  std::optional<std::vector<std::string>> culprits_;
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
