#include "actors/supervision/restart_policy.hpp"
#include "messages/base/planted.hpp"

#include <algorithm>

namespace troupe::supervision {

restart_policy::restart_policy(strategy s, restart_limits limits,
                               std::vector<restart_kind> children, std::uint64_t seed)
    : strategy_(s), limits_(limits), children_(std::move(children)), random_(seed) {}

std::uint32_t restart_policy::recent(time_point now) const {
  return static_cast<std::uint32_t>(
      std::count_if(restarts_.begin(), restarts_.end(),
                    [&](const auto& r) { return now - r.at < limits_.period; }));
}

/// Of the restarts that are kept.
bool restart_policy::exceeded() const {
  if (planted::is(planted::bug::no_restart_limit)) return false;
  return std::count_if(restarts_.begin(), restarts_.end(), [](const auto& r) {
           return r.counts;
         }) >= static_cast<std::ptrdiff_t>(limits_.intensity);
}

decision restart_policy::decide(std::size_t child, ending how, time_point now) {
  const auto kind = children_.at(child);
  if (kind == restart_kind::temporary || (kind == restart_kind::transient && how == ending::clean))
    return {};
  if (how == ending::fatal) return {decision::kind::escalate, {}, {}};
  while (!restarts_.empty() && now - restarts_.front().at >= limits_.period) restarts_.pop_front();
  const bool counts = how != ending::excused || limits_.intensity == 0;
  if (counts && exceeded()) return {decision::kind::escalate, {}, {}};
  decision d;
  d.what = decision::kind::restart;
  // Doubling stops where it would exceed the maximum: no overflow, whatever the intensity.
  auto delay = limits_.backoff_min;
  for (std::size_t i = 0; i < restarts_.size() && delay < limits_.backoff_max; ++i) delay *= 2;
  delay = std::min(delay, limits_.backoff_max);
  std::uniform_int_distribution<std::int64_t> jitter{delay.count() / 2, delay.count()};
  d.delay = std::chrono::milliseconds{jitter(random_)};
  restarts_.push_back({now, counts});
  const auto first = strategy_ == strategy::one_for_all ? 0 : child;
  const auto last = strategy_ == strategy::one_for_one ? child + 1 : children_.size();
  for (auto i = first; i < last; ++i) d.children.push_back(i);
  return d;
}

}  // namespace troupe::supervision
