#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace troupe::admission {

/// How much of a model's capacity this gateway may use now. A request goes to the workers only when
/// it can run there, so that those who wait, wait here, where order and refusal are decided. Pure.
///
/// Places: the slots of all ready workers that decode. What other gateways use is known from the
/// workers' reports, up to a second late; so of what is free, each gateway takes its share until
/// the next report: as much of all as it has of what is in use, and at least one of so many
/// gateways. Where others have taken all, it has one place nevertheless, and guaranteed work as
/// many as are one gateway's: who has more gives up what is too much as its requests end. Prompts:
/// one for each worker that prefills, and beyond that only as many tokens as these take up at once:
/// a queue there would be time to the first token of everybody in it.
class capacity_window {
 public:
  struct supply {
    std::uint32_t slots = 0;           ///< of workers that decode
    std::uint32_t in_use = 0;          ///< of them, as reports say: running or queued, anybody's
    std::uint64_t prefill_tokens = 0;  ///< that workers which prefill take up at once, together
    std::uint32_t gateways = 1;
    std::uint32_t prefill_workers = 1;
    /// Places in use at workers that drain: nothing begins there, but what runs there is not where
    /// something could begin. Not in `slots`, nor in `in_use`.
    std::uint32_t leaving = 0;
  };
  void update(const supply& s) {
    supply_ = s;
    if (s.slots == 0) {
      limit_ = guaranteed_limit_ = 0;
      return;
    }
    const auto slots = s.slots + s.leaving;
    const auto n = std::max<std::uint32_t>(1, s.gateways);
    const auto in_use = std::max(s.in_use + s.leaving, open_);  // our own are no news
    share_ = std::max(1.0 / n, in_use == 0 ? 0 : static_cast<double>(open_) / in_use);
    if (n == 1) {
      limit_ = slots;
    } else if (in_use <= slots) {
      limit_ = std::max<std::uint32_t>(1, open_ + part_of(slots - in_use));
    } else {
      limit_ = std::max<std::uint32_t>(
          1, static_cast<std::uint32_t>(std::uint64_t{open_} * slots / in_use));
    }
    limit_ = std::min(limit_, slots);
    guaranteed_limit_ = std::max(limit_, s.slots / n + (s.slots % n == 0 ? 0 : 1));
  }

  /// `guaranteed`: for work of that class.
  bool has_room(bool guaranteed = false) const {
    if (open_ >= (guaranteed ? guaranteed_limit_ : limit_)) return false;
    return prefilling_ < part_of(std::max<std::uint32_t>(1, supply_.prefill_workers)) ||
           static_cast<double>(prefilling_tokens_) <
               share_ * static_cast<double>(supply_.prefill_tokens);
  }
  /// `places`: answers that are sampled at once. One request may go beyond the limit by what it has
  /// more than one: otherwise a wide one would wait for ever behind narrow ones.
  void began(std::uint64_t prompt_tokens, std::uint32_t places = 1) {
    open_ += places;
    ++prefilling_;
    prefilling_tokens_ += prompt_tokens;
  }
  void prefilled(std::uint64_t prompt_tokens) {
    --prefilling_;
    prefilling_tokens_ -= std::min(prefilling_tokens_, prompt_tokens);
  }
  /// After `prefilled`.
  void ended(std::uint32_t places = 1) { open_ -= std::min(open_, places); }

  std::uint32_t open() const { return open_; }
  std::uint32_t limit() const { return limit_; }
  /// Of workers that take something; 0: nobody serves the model.
  std::uint32_t slots() const { return supply_.slots; }

 private:
  std::uint32_t part_of(std::uint32_t all) const {
    return static_cast<std::uint32_t>(std::ceil(share_ * all));
  }

  supply supply_;
  double share_ = 1;
  std::uint32_t limit_ = 0;
  std::uint32_t guaranteed_limit_ = 0;
  std::uint32_t open_ = 0;
  std::uint32_t prefilling_ = 0;
  std::uint64_t prefilling_tokens_ = 0;
};

}  // namespace troupe::admission
