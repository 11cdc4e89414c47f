#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>

namespace troupe::capacity {

/// Quantiles of a stream of lengths: weights in buckets that grow by a fixed ratio, the newest
/// counting most. Some 300 bytes, whatever it sees. A value type; pure.
class length_quantiles {
 public:
  /// Each answer counts this much against the next one: about the last hundred matter.
  static constexpr double decay = 0.99;
  /// Buckets in each doubling: a quantile is right within 2^(1/8) of a length.
  static constexpr unsigned buckets_per_doubling = 4;
  static constexpr std::uint32_t length_max = 1U << 20U;  ///< longer ones count as this

  void learn(std::uint32_t length);
  /// The smallest length that is not below a share `q` of all; 0 when nothing was learnt.
  std::uint32_t quantile(double q) const;
  std::uint64_t learnt() const { return learnt_; }

 private:
  static constexpr std::size_t buckets = 20 * buckets_per_doubling + 1;
  static std::size_t bucket_of(std::uint32_t length);
  static std::uint32_t upper_end(std::size_t bucket);

  std::array<float, buckets> weights_{};
  std::uint64_t learnt_ = 0;
};

/// How long answers will be, learnt from finished ones per tenant and model, so that admission
/// reserves what a request will probably need instead of all that it may. Where a tenant is new to
/// a model the model's other tenants tell, and where the model is new, a guess. Memory is bounded:
/// beyond `series_max` the series that was not used for longest is forgotten. Pure.
class output_forecast {
 public:
  static constexpr std::size_t series_max = 4'096;
  /// Below so many answers of its own a series is not believed.
  static constexpr std::uint64_t answers_min = 8;
  static constexpr std::uint32_t tokens_at_start = 256;

  enum class basis : std::uint8_t { nothing, model, tenant };
  struct prediction {
    std::uint32_t p50 = tokens_at_start;
    std::uint32_t p90 = tokens_at_start;
    basis from = basis::nothing;
  };

  /// `cut`: it ended at its `max_tokens`, so that it says only that the answer would have been
  /// longer. Such a one counts where it is longer than was expected, and else tells nothing.
  void learn(std::string_view tenant, std::string_view model, std::uint32_t tokens,
             bool cut = false);
  prediction predict(std::string_view tenant, std::string_view model) const;
  /// What to reserve for one choice: min(max_tokens, p90). A `max_tokens` of 0 is none.
  std::uint32_t reserve(std::string_view tenant, std::string_view model,
                        std::uint32_t max_tokens) const;
  std::size_t series() const { return by_key_.size(); }

 private:
  struct entry {
    std::string key;
    length_quantiles lengths;
  };

  static std::string key_of(std::string_view tenant, std::string_view model);
  const length_quantiles* believed(const std::string& key) const;
  length_quantiles& touch(const std::string& key);

  std::list<entry> by_use_;  ///< the latest first
  std::unordered_map<std::string, std::list<entry>::iterator> by_key_;
};

}  // namespace troupe::capacity
