#pragma once

#include <algorithm>
#include <cstdint>

namespace troupe::admission {

/// How much of a model's capacity this gateway may use now. A request goes to the workers only when
/// it can run there, so that those who wait, wait here, where order and refusal are decided. Pure.
///
/// Places: the slots of all ready workers that decode. What other gateways use is known from the
/// workers' reports, up to a second late; so of what is free, each gateway takes its share until
/// the next report. Prompts: only as many tokens as the next step of each worker that prefills has
/// room for, and at least one prompt: a queue there would be time to the first token of everybody
/// in it.
class capacity_window {
 public:
  struct supply {
    std::uint32_t slots = 0;           ///< of workers that decode
    std::uint32_t in_use = 0;          ///< of them, as reports say: running or queued, anybody's
    std::uint64_t prefill_tokens = 0;  ///< of a step, summed over workers that prefill
    std::uint32_t gateways = 1;
  };
  void update(const supply& s) {
    supply_ = s;
    const auto share = std::max<std::uint32_t>(1, s.gateways);
    const auto in_use = std::max(s.in_use, open_);  // our own are no news
    if (share == 1) {
      limit_ = s.slots;
    } else if (in_use <= s.slots) {
      limit_ = open_ + (s.slots - in_use + share - 1) / share;
    } else {
      limit_ = std::max<std::uint32_t>(
          1, static_cast<std::uint32_t>(std::uint64_t{open_} * s.slots / in_use));
    }
    limit_ = std::min(limit_, s.slots);
  }

  bool has_room() const {
    if (open_ >= limit_) return false;
    return prefilling_ == 0 ||
           prefilling_tokens_ <
               supply_.prefill_tokens / std::max<std::uint32_t>(1, supply_.gateways);
  }
  void began(std::uint64_t prompt_tokens) {
    ++open_;
    ++prefilling_;
    prefilling_tokens_ += prompt_tokens;
  }
  void prefilled(std::uint64_t prompt_tokens) {
    --prefilling_;
    prefilling_tokens_ -= std::min(prefilling_tokens_, prompt_tokens);
  }
  /// After `prefilled`.
  void ended() { --open_; }

  std::uint32_t open() const { return open_; }
  std::uint32_t limit() const { return limit_; }
  std::uint32_t slots() const { return supply_.slots; }

 private:
  supply supply_;
  std::uint32_t limit_ = 0;
  std::uint32_t open_ = 0;
  std::uint32_t prefilling_ = 0;
  std::uint64_t prefilling_tokens_ = 0;
};

}  // namespace troupe::admission
