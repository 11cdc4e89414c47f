#include "actors/request/poison_policy.hpp"

#include <algorithm>

namespace troupe::request {

suspicion::verdict suspicion::faulted(std::uint32_t suspects, bool alone,
                                      const std::vector<std::string>& engines) {
  if (alone && suspects <= 1) {
    if (!culprits_) culprits_ = engines;
    std::erase_if(*culprits_, [&](const std::string& e) {
      return std::find(engines.begin(), engines.end(), e) == engines.end();
    });
    if (culprits_->empty()) return verdict::convicted;
  }
  return count(suspects);
}

void poison_list::add(std::uint64_t fingerprint, std::chrono::milliseconds how_long,
                      time_point now) {
  forget_old(now);
  auto& until = until_[fingerprint];
  until = std::max(until, now + std::min(how_long, poison_refused_for));
  if (until_.size() <= poison_fingerprints_max) return;
  until_.erase(std::min_element(until_.begin(), until_.end(),
                                [](const auto& a, const auto& b) { return a.second < b.second; }));
}

std::chrono::milliseconds poison_list::refused_for(std::uint64_t fingerprint,
                                                   time_point now) const {
  const auto i = until_.find(fingerprint);
  if (i == until_.end() || i->second <= now) return std::chrono::milliseconds{0};
  return std::chrono::ceil<std::chrono::milliseconds>(i->second - now);
}

void poison_list::forget_old(time_point now) {
  std::erase_if(until_, [&](const auto& x) { return x.second <= now; });
}

}  // namespace troupe::request
