#include "actors/control/assigner.hpp"

#include "actors/control/placement.hpp"
#include "actors/control/slice_plan.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace troupe::control {

namespace {

std::vector<std::uint16_t> still_healthy(const assignment& now,
                                         std::span<const shard_state> shards) {
  std::vector<std::uint16_t> out;
  for (std::size_t i = 0; i < now.shards().size(); ++i)
    if (std::any_of(shards.begin(), shards.end(),
                    [&](const shard_state& s) { return s.healthy && s.name == now.shards()[i]; }))
      out.push_back(static_cast<std::uint16_t>(i));
  return out;
}

}  // namespace

assigner_round assign(const assignment& now, std::span<const shard_state> shards,
                      const load_map& load, const assigner_limits& limits,
                      assignment_number number) {
  const bool any = std::any_of(shards.begin(), shards.end(),
                               [](const auto& s) { return s.healthy; });
  if (!any) {
    auto same = assignment::make(number, now.shards(), now.slices());
    return {std::move(same).value(), 1, 1, 0, 0, 0};
  }
  slice_plan plan{now, shards, load, limits};
  plan.drop_and_clamp();
  plan.split_hot();
  plan.merge_cold();
  plan.split_to_minimum();
  placement place{plan, limits, plan.merge_churn()};
  const auto steps = place.search();
  plan.merge_same();

  std::vector<std::string> names;
  for (const auto& s : shards) names.push_back(s.name);
  std::vector<slice> slices;
  for (const auto& p : plan.pieces()) slices.push_back({p.first, p.replicas});
  auto next = assignment::make(number, std::move(names), std::move(slices)).value();
  const auto alive = still_healthy(now, shards);
  const auto before = alive.empty() ? 1 : imbalance(now, load, alive);
  const auto after = imbalance(next, load, plan.healthy());
  return {std::move(next), before, after, place.churn(), plan.forced(), steps};
}

assignment hold(const assignment& now, const assignment& next, const std::set<std::string>& held) {
  const auto is_held = [&](std::uint16_t r) { return held.contains(now.shards()[r]); };
  std::set<key64> cuts;
  for (const auto& s : now.slices()) cuts.insert(s.first);
  for (const auto& s : next.slices()) cuts.insert(s.first);
  const auto& names = next.shards();
  std::vector<slice> slices;
  bool stays_before = false;
  for (auto first : cuts) {
    const auto had = now.replicas_of(first);
    slice s{first, {}};
    const bool stays = std::any_of(had.begin(), had.end(), is_held);
    if (stays)
      for (auto r : had)
        if (const auto i = std::find(names.begin(), names.end(), now.shards()[r]); i != names.end())
          s.replicas.push_back(static_cast<std::uint16_t>(i - names.begin()));
    std::sort(s.replicas.begin(), s.replicas.end());
    if (s.replicas.empty()) {
      const auto gets = next.replicas_of(first);
      s.replicas.assign(gets.begin(), gets.end());
    }
    // Cuts of the other one mean nothing here.
    const auto& meant = stays ? now : next;
    const bool own = meant.slices()[meant.slice_of(first)].first == first;
    if (slices.empty() || own || stays != stays_before || s.replicas != slices.back().replicas)
      slices.push_back(std::move(s));
    stays_before = stays;
  }
  auto made = assignment::make(next.number(), names, std::move(slices));
  if (made) return *std::move(made);
  return assignment::make(next.number(), now.shards(), now.slices()).value();
}

double churn_between(const assignment& before, const assignment& after) {
  std::set<key64> cuts;
  for (const auto& s : before.slices()) cuts.insert(s.first);
  for (const auto& s : after.slices()) cuts.insert(s.first);
  double sum = 0;
  for (auto i = cuts.begin(); i != cuts.end(); ++i) {
    const auto last = std::next(i) == cuts.end() ? ~key64{0} : *std::next(i) - 1;
    const auto now = after.replicas_of(*i);
    std::size_t fresh = 0;
    for (auto r : now)
      if (!before.has(after.shards()[r], *i)) ++fresh;
    sum += width(*i, last) * static_cast<double>(fresh) / static_cast<double>(now.size());
  }
  return sum;
}

}  // namespace troupe::control
