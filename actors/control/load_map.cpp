#include "actors/control/load_map.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace troupe::control {

namespace {

double sane(double load) { return std::isfinite(load) && load > 0 ? load : 0; }
double keys_between(key64 first, key64 end) { return static_cast<double>(end - first); }

}  // namespace

load_map::load_map(std::span<const range_load> ranges, std::span<const key_load> keys) {
  std::map<key64, double> hot;
  for (const auto& k : keys)
    if (sane(k.load) > 0) hot[k.key] += k.load;
  // What stands out is taken from its ranges, of each its share.
  std::map<key64, double> changes;  // of the density
  changes[0] = 0;
  std::map<key64, double> taken = hot;
  for (const auto& r : ranges) {
    if (r.last < r.first) continue;
    double left = sane(r.load);
    for (auto i = taken.lower_bound(r.first); i != taken.end() && i->first <= r.last; ++i) {
      const auto share = std::min(left, i->second);
      left -= share;
      i->second -= share;
    }
    const auto density = left / (static_cast<double>(r.last - r.first) + 1);
    changes[r.first] += density;
    if (r.last != ~key64{0}) changes[r.last + 1] -= density;
  }
  double density = 0;
  double before = 0;
  for (const auto& [first, change] : changes) {
    if (!steps_.empty()) before += keys_between(steps_.back().first, first) * density;
    density = std::max(0.0, density + change);
    steps_.push_back({first, before, density});
  }
  double sum = 0;
  for (const auto& [key, load] : hot) {
    keys_.push_back({key, load});
    keys_before_.push_back(sum);
    sum += load;
  }
  keys_before_.push_back(sum);
  total_ = of(0, ~key64{0});
}

double load_map::even_before(key64 key) const {
  const auto i = std::upper_bound(steps_.begin(), steps_.end(), key,
                                  [](key64 k, const step& s) { return k < s.first; });
  if (i == steps_.begin()) return 0;
  const auto& s = *std::prev(i);
  return s.before + keys_between(s.first, key) * s.density;
}

std::span<const key_load> load_map::keys_in(key64 first, key64 last) const {
  const auto less = [](const key_load& a, key64 k) { return a.key < k; };
  const auto from = std::lower_bound(keys_.begin(), keys_.end(), first, less);
  const auto to = std::upper_bound(from, keys_.end(), last,
                                   [](key64 k, const key_load& a) { return k < a.key; });
  return {from, to};
}

double load_map::of(key64 first, key64 last) const {
  if (steps_.empty()) return 0;
  double even = even_before(last) - even_before(first);
  // The last key itself.
  const auto i = std::upper_bound(steps_.begin(), steps_.end(), last,
                                  [](key64 k, const step& s) { return k < s.first; });
  even += std::prev(i)->density;
  const auto hot = keys_in(first, last);
  if (hot.empty()) return std::max(0.0, even);
  const auto at = static_cast<std::size_t>(hot.data() - keys_.data());
  return std::max(0.0, even) + keys_before_[at + hot.size()] - keys_before_[at];
}

double imbalance(const assignment& a, const load_map& load,
                 std::span<const std::uint16_t> shards_counted) {
  std::vector<double> on(a.shards().size(), 0);
  for (std::size_t i = 0; i < a.slices().size(); ++i) {
    const auto& s = a.slices()[i];
    const auto each = load.of(s.first, a.last_of(i)) / static_cast<double>(s.replicas.size());
    for (auto r : s.replicas) on[r] += each;
  }
  double sum = 0;
  double most = 0;
  std::size_t count = 0;
  const auto take = [&](double x) {
    sum += x;
    most = std::max(most, x);
    ++count;
  };
  if (shards_counted.empty())
    for (auto x : on) take(x);
  else
    for (auto r : shards_counted) take(on[r]);
  return sum > 0 ? most * static_cast<double>(count) / sum : 1;
}

}  // namespace troupe::control
