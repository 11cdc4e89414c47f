#include "actors/router/worker_subsets.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace troupe::router {

/// splitmix64's finaliser.
std::uint64_t worker_subsets::mix(std::uint64_t x) {
  x += 0x9E37'79B9'7F4A'7C15ULL;
  x = (x ^ x >> 30U) * 0xBF58'476D'1CE4'E5B9ULL;
  x = (x ^ x >> 27U) * 0x94D0'49BB'1331'11EBULL;
  return x ^ x >> 31U;
}

void worker_subsets::set_pool(std::vector<std::uint32_t> workers) {
  all_ = std::move(workers);
  ++version_;
}

void worker_subsets::add(std::uint32_t worker) {
  if (std::find(all_.begin(), all_.end(), worker) != all_.end()) return;
  all_.push_back(worker);
  ++version_;
}

void worker_subsets::remove(std::uint32_t worker) {
  if (std::erase(all_, worker) > 0) ++version_;
}

worker_subsets::share& worker_subsets::find(std::uint64_t workload) {
  if (const auto i = by_workload_.find(workload); i != by_workload_.end()) {
    recent_.splice(recent_.begin(), recent_, i->second);
    return recent_.front();
  }
  if (recent_.size() >= workloads_max) {
    by_workload_.erase(recent_.back().workload);
    recent_.pop_back();
  }
  recent_.emplace_front().workload = workload;
  by_workload_[workload] = recent_.begin();
  return recent_.front();
}

/// Highest random weight: of all workers those with the largest hash of workload and worker.
void worker_subsets::draw(share& s) {
  s.version = version_;
  const auto wanted = std::min(all_.size(), s.groups * decision_workers_max);
  std::vector<std::pair<std::uint64_t, std::uint32_t>> weights;
  weights.reserve(all_.size());
  for (auto w : all_) weights.emplace_back(mix(s.workload ^ mix(w)), w);
  std::partial_sort(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(wanted),
                    weights.end(), std::greater<>{});
  s.workers.clear();
  for (std::size_t i = 0; i < wanted; ++i) s.workers.push_back(weights[i].second);
}

std::span<const std::uint32_t> worker_subsets::of(std::uint64_t workload,
                                                  std::uint64_t conversation) {
  if (all_.size() <= decision_workers_max) return all_;
  auto& s = find(workload);
  if (s.version != version_) draw(s);
  const auto groups = (s.workers.size() + decision_workers_max - 1) / decision_workers_max;
  const auto begin = mix(conversation) % groups * decision_workers_max;
  return std::span{s.workers}.subspan(begin,
                                      std::min(decision_workers_max, s.workers.size() - begin));
}

void worker_subsets::note_wait(std::uint64_t workload, double seconds, time_point now) {
  if (all_.size() <= decision_workers_max) return;
  auto& s = find(workload);
  if (seconds > grow_wait_seconds) {
    s.last_wait = now;
    if (s.groups * decision_workers_max >= all_.size()) return;
    if (s.waited && now - s.grown < grow_interval) return;
    s.waited = true;
    s.grown = now;
    s.groups *= 2;
    s.version = 0;
  } else if (s.groups > 1 && now - s.last_wait > shrink_after) {
    s.last_wait = now;  // the next half after as long again
    s.groups /= 2;
    s.version = 0;
  }
}

std::size_t worker_subsets::size_of(std::uint64_t workload) const {
  const auto i = by_workload_.find(workload);
  return std::min(all_.size(),
                  (i == by_workload_.end() ? 1 : i->second->groups) * decision_workers_max);
}

}  // namespace troupe::router
