#include "actors/control/placement.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::control {

namespace {

/// Of a shard without a slice, x the most that it should have.
constexpr double empty_price = 100;

}  // namespace

double load_price(double load, double least, double most) {
  if (load < least) {
    const auto d = least - load;
    return 4 * std::pow(1 + d / least, 2) * d;
  }
  if (load > most) return 16 * std::pow(load / most, 2) * (load - most);
  return 0;
}

placement::placement(slice_plan& plan, const assigner_limits& limits, double spent)
    : plan_(plan), limits_(limits), spent_(spent), slots_(plan.slots()) {
  const auto count = static_cast<std::size_t>(plan.healthy().back()) + 1;
  load_.assign(count, 0);
  pieces_.assign(count, 0);
  fresh_.assign(count, true);
  for (const auto& p : plan.pieces()) {
    for (auto r : p.home) fresh_[r] = false;
    for (auto r : p.replicas) {
      load_[r] += p.each();
      ++pieces_[r];
    }
  }
}

double placement::price_of(std::uint16_t shard, double load, std::size_t pieces) const {
  const auto most = plan_.mean() + plan_.tau();
  if (pieces == 0) return empty_price * most;
  // One that is new gets its full share at once: for less it would be moved to again.
  return load_price(load, fresh_[shard] ? plan_.mean() : plan_.mean() - plan_.tau(), most);
}

std::vector<std::uint16_t> placement::after(act how, const piece& p, std::uint16_t to) const {
  auto r = p.replicas;
  if (how != act::replicate) r.erase(std::find(r.begin(), r.end(), from_));
  if (how != act::give_up) r.insert(std::lower_bound(r.begin(), r.end(), to), to);
  return r;
}

void placement::consider(change& best, act how, piece& p, std::uint16_t to) const {
  piece next = p;
  next.replicas = after(how, p, to);
  const auto keys = (next.moved() - p.moved()) * p.keys();
  // Keys that come home again make room; those that leave need it.
  if (keys > 0 && spent_ + keys > limits_.churn_max) return;
  const auto before = p.each();
  const auto each = next.each();
  double gain = -limits_.churn_price * (next.moved() - p.moved()) * p.load;
  const auto on = [&](std::uint16_t shard, double load, std::size_t count) {
    gain += price_of(shard, load_[shard], pieces_[shard]) - price_of(shard, load, count);
  };
  for (auto r : p.replicas)
    if (next.on(r))
      on(r, load_[r] - before + each, pieces_[r]);
    else
      on(r, load_[r] - before, pieces_[r] - 1);
  if (how != act::give_up) on(to, load_[to] + each, pieces_[to] + 1);
  if (gain > best.gain) best = {how, &p, to, gain};
}

void placement::apply(const change& c) {
  auto& p = *c.what;
  const auto before = p.moved();
  for (auto r : p.replicas) {
    load_[r] -= p.each();
    --pieces_[r];
  }
  slots_ -= p.replicas.size();
  p.replicas = after(c.how, p, c.to);
  slots_ += p.replicas.size();
  for (auto r : p.replicas) {
    load_[r] += p.each();
    ++pieces_[r];
  }
  spent_ += (p.moved() - before) * p.keys();
}

std::uint16_t placement::hottest() const {
  const auto& all = plan_.healthy();
  return *std::max_element(all.begin(), all.end(),
                           [&](auto a, auto b) { return load_[a] < load_[b]; });
}

std::vector<std::uint16_t> placement::coldest() const {
  auto all = plan_.healthy();
  std::erase(all, from_);
  const auto count = std::min<std::size_t>(all.size(), limits_.targets_max);
  std::partial_sort(
      all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count), all.end(),
      [&](auto a, auto b) { return load_[a] != load_[b] ? load_[a] < load_[b] : a < b; });
  all.resize(count);
  return all;
}

std::uint32_t placement::search() {
  std::uint32_t steps = 0;
  const auto least = std::min<std::size_t>(std::max<std::uint32_t>(1, limits_.replicas_min),
                                           plan_.replicas_max());
  const auto slots_min = limits_.slices_min * plan_.healthy().size();
  for (; steps < limits_.steps_max; ++steps) {
    from_ = hottest();
    const auto targets = coldest();
    change best;
    for (auto& p : plan_.pieces()) {
      if (!p.on(from_)) continue;
      const bool more = p.replicas.size() < plan_.replicas_max() && slots_ < plan_.slots_max();
      for (auto to : targets) {
        if (p.on(to)) continue;
        consider(best, act::reassign, p, to);
        if (more) consider(best, act::replicate, p, to);
      }
      if (p.replicas.size() > least && slots_ > slots_min) consider(best, act::give_up, p, 0);
    }
    if (best.what == nullptr || best.gain < limits_.improvement_min * plan_.tau()) break;
    apply(best);
  }
  return steps;
}

}  // namespace troupe::control
