#pragma once

#include "apps/bench/plan.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace troupe::bench {

/// Makes prompts of English words, all plain ASCII. The same seed makes the same prompts. Costs a
/// copy, since prompts are cut from a text that is made once.
class prompt_maker {
 public:
  /// `shared_prefix_bytes` begin every prompt of one prefix number alike; `block_bytes` is the
  /// length of a trace's block.
  prompt_maker(std::uint64_t seed, std::uint32_t shared_prefix_bytes, std::uint32_t block_bytes);

  /// The shared prefix (or the trace's blocks), then text of its own up to `prompt_bytes` in all,
  /// or the blocks cut to it. Two requests without blocks differ from the end of the shared prefix
  /// on.
  std::string make(const planned_request& request) const;

 private:
  void append(std::string& out, std::uint64_t key, std::size_t bytes) const;

  std::uint64_t seed_;
  std::uint32_t shared_prefix_bytes_;
  std::uint32_t block_bytes_;
  std::string text_;
};

}  // namespace troupe::bench
