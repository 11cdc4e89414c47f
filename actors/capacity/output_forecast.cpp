#include "actors/capacity/output_forecast.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace troupe::capacity {

std::size_t length_quantiles::bucket_of(std::uint32_t length) {
  length = std::clamp<std::uint32_t>(length, 1, length_max);
  const auto b = std::ceil(std::log2(static_cast<double>(length)) * buckets_per_doubling - 1e-9);
  return std::min(buckets - 1, static_cast<std::size_t>(b));
}

std::uint32_t length_quantiles::upper_end(std::size_t bucket) {
  return static_cast<std::uint32_t>(
      std::floor(std::exp2(static_cast<double>(bucket) / buckets_per_doubling) + 1e-6));
}

void length_quantiles::learn(std::uint32_t length) {
  for (auto& w : weights_) w *= static_cast<float>(decay);
  weights_[bucket_of(length)] += 1;
  ++learnt_;
}

std::uint32_t length_quantiles::quantile(double q) const {
  const auto all = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  if (all <= 0) return 0;
  double below = 0;
  for (std::size_t b = 0; b < buckets; ++b) {
    below += weights_[b];
    if (below >= q * all * (1 - 1e-6)) return upper_end(b);
  }
  return length_max;
}

std::string output_forecast::key_of(std::string_view tenant, std::string_view model) {
  std::string key;
  key.reserve(tenant.size() + model.size() + 1);
  key.append(tenant).append(1, '\0').append(model);
  return key;
}

const length_quantiles* output_forecast::believed(const std::string& key) const {
  const auto i = by_key_.find(key);
  return i != by_key_.end() && i->second->lengths.learnt() >= answers_min ? &i->second->lengths
                                                                          : nullptr;
}

length_quantiles& output_forecast::touch(const std::string& key) {
  if (const auto i = by_key_.find(key); i != by_key_.end()) {
    by_use_.splice(by_use_.begin(), by_use_, i->second);
    return i->second->lengths;
  }
  if (by_key_.size() >= series_max) {
    by_key_.erase(by_use_.back().key);
    by_use_.pop_back();
  }
  by_use_.push_front({key, {}});
  by_key_[key] = by_use_.begin();
  return by_use_.front().lengths;
}

void output_forecast::learn(std::string_view tenant, std::string_view model, std::uint32_t tokens,
                            bool cut) {
  if (cut && tokens <= predict(tenant, model).p90) return;
  // The model's series is touched last: it is needed most, and never forgotten before its tenants'.
  if (!tenant.empty()) touch(key_of(tenant, model)).learn(tokens);
  touch(key_of({}, model)).learn(tokens);
}

output_forecast::prediction output_forecast::predict(std::string_view tenant,
                                                     std::string_view model) const {
  if (!tenant.empty())
    if (const auto* own = believed(key_of(tenant, model)))
      return {own->quantile(0.5), own->quantile(0.9), basis::tenant};
  if (const auto* all = believed(key_of({}, model)))
    return {all->quantile(0.5), all->quantile(0.9), basis::model};
  return {};
}

std::uint32_t output_forecast::reserve(std::string_view tenant, std::string_view model,
                                       std::uint32_t max_tokens) const {
  const auto p90 = std::max<std::uint32_t>(1, predict(tenant, model).p90);
  return max_tokens == 0 ? p90 : std::min(max_tokens, p90);
}

}  // namespace troupe::capacity
