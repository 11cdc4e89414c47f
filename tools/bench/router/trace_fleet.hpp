#pragma once

#include "actors/capacity/cost_model.hpp"
#include "actors/router/router_policy.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe::bench {

/// One request of the trace. A block of it is 512 tokens with all before it.
struct trace_request {
  std::uint64_t at_ms = 0;
  std::uint32_t input = 0;
  std::uint32_t output = 0;
  std::vector<std::uint32_t> blocks;
};

/// The byte chain of a request: four blocks of 512 bytes for each of the trace's, 4 bytes a token.
std::vector<std::uint64_t> chain_of(const trace_request& r);

/// A worker that prefills one prompt after the other and decodes beside it: a stream takes a token
/// each `token_seconds`, and that share of the engine which its cost is; prefill has the rest. Its
/// cache keeps whole blocks, the least recently used go first, the ends of prompts before their
/// beginnings.
class sim_worker {
 public:
  static constexpr double token_seconds = 0.025;
  static constexpr double prefill_share_min = 0.2;

  sim_worker(const capacity::cost_model& costs, std::size_t blocks_max)
      : costs_(&costs), blocks_max_(blocks_max) {}

  struct job {
    const trace_request* what = nullptr;
    std::uint64_t tag = 0;
    double left = 0;           ///< seconds of prefill, once it began
    double whole = 0;          ///< of them, at its beginning
    std::uint32_t missed = 0;  ///< tokens that are computed
    double end = 0;            ///< of decode
  };
  void submit(const trace_request& r, std::uint64_t tag) { waiting_.push_back({&r, tag}); }
  /// Until `now`, from `now - seconds` on. `done` is called for each stream that has ended.
  void run(double now, double seconds, const std::function<void(std::uint64_t)>& done);

  router::worker_report report() const;
  /// Byte-chain blocks that came and went since the last call.
  void take_events(std::vector<std::uint64_t>& added, std::vector<std::uint64_t>& dropped);
  double take_busy() { return std::exchange(busy_, 0.0); }
  bool idle() const { return waiting_.empty() && decoding_.empty(); }
  std::uint64_t hit_tokens() const { return hit_tokens_; }
  std::uint64_t prompt_tokens() const { return prompt_tokens_; }
  const std::vector<double>& ttfts() const { return ttfts_; }  ///< seconds

 private:
  std::uint32_t cached(const trace_request& r) const;
  void keep(const trace_request& r);
  void tell(std::uint32_t block, std::vector<std::uint64_t>& to) const;

  const capacity::cost_model* costs_;
  std::size_t blocks_max_;
  std::deque<job> waiting_;  ///< the first is being computed
  bool begun_ = false;
  std::vector<job> decoding_;
  std::list<std::uint32_t> recent_;
  std::unordered_map<std::uint32_t, std::list<std::uint32_t>::iterator> cache_;
  std::vector<std::uint64_t> added_, dropped_;
  std::vector<double> ttfts_;
  double busy_ = 0;
  std::uint64_t hit_tokens_ = 0, prompt_tokens_ = 0;
  double prefilled_ = 0, sampled_ = 0;  ///< tokens
};

}  // namespace troupe::bench
