#include "actors/control/slice_plan.hpp"

#include <algorithm>
#include <map>
#include <queue>

namespace troupe::control {

namespace {

bool contains(const std::vector<std::uint16_t>& sorted, std::uint16_t x) {
  return std::binary_search(sorted.begin(), sorted.end(), x);
}
void insert(std::vector<std::uint16_t>& sorted, std::uint16_t x) {
  sorted.insert(std::lower_bound(sorted.begin(), sorted.end(), x), x);
}

}  // namespace

double piece::moved() const {
  const auto fresh = std::count_if(replicas.begin(), replicas.end(),
                                   [&](std::uint16_t r) { return !contains(home, r); });
  return static_cast<double>(fresh) / static_cast<double>(replicas.size());
}

bool piece::on(std::uint16_t shard) const { return contains(replicas, shard); }

slice_plan::slice_plan(const assignment& now, std::span<const shard_state> shards,
                       const load_map& load, const assigner_limits& limits)
    : load_(load), limits_(limits) {
  std::map<std::string, std::uint16_t> index;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (!shards[i].healthy) continue;
    healthy_.push_back(static_cast<std::uint16_t>(i));
    index[shards[i].name] = static_cast<std::uint16_t>(i);
  }
  const auto n = static_cast<double>(healthy_.size());
  const auto hint = std::max(limits.load_hint, n > 0 ? load.total() / n : 0);
  // Without any load the key space itself is what is shared out.
  reserved_ = limits.reserved_uniform * n * (hint > 0 ? hint : 1);
  mean_ = n > 0 ? (load.total() + reserved_) / n : 1;
  scale_ = std::max(limits.load_hint, mean_);
  for (std::size_t i = 0; i < now.slices().size(); ++i) {
    const auto& s = now.slices()[i];
    piece p;
    p.first = s.first;
    p.last = now.last_of(i);
    p.load = load_of(p.first, p.last);
    for (auto r : s.replicas)
      if (const auto x = index.find(now.shards()[r]); x != index.end()) insert(p.home, x->second);
    p.replicas = p.home;
    pieces_.push_back(std::move(p));
  }
}

double slice_plan::load_of(key64 first, key64 last) const {
  return load_.of(first, last) + reserved_ * width(first, last);
}

std::size_t slice_plan::replicas_max() const {
  return std::max<std::size_t>(1, std::min({static_cast<std::size_t>(limits_.replicas_max),
                                            control::replicas_max, healthy_.size()}));
}

std::size_t slice_plan::slots() const {
  std::size_t sum = 0;
  for (const auto& p : pieces_) sum += p.replicas.size();
  return sum;
}

void slice_plan::drop_and_clamp() {
  std::map<std::uint16_t, double> on;
  for (auto h : healthy_) on[h] = 0;
  for (const auto& p : pieces_)
    for (auto r : p.replicas) on[r] += p.each();
  const auto coldest_without = [&](const piece& p) {
    auto best = healthy_.front();
    for (auto h : healthy_)
      if (!p.on(h) && (p.on(best) || on[h] < on[best])) best = h;
    return best;
  };
  const auto share = [&](const piece& p, double sign) {
    for (auto r : p.replicas) on[r] += sign * p.each();
  };
  const auto most = replicas_max();
  const auto least = std::clamp<std::size_t>(limits_.replicas_min, 1, most);
  // The largest first: small ones even out what they leave.
  std::vector<piece*> order;
  for (auto& p : pieces_)
    if (p.replicas.size() < least || p.replicas.size() > most) order.push_back(&p);
  std::stable_sort(order.begin(), order.end(),
                   [](const piece* a, const piece* b) { return a->load > b->load; });
  for (auto* p : order) {
    if (p->home.empty()) forced_ += p->keys();
    if (!p->replicas.empty()) share(*p, -1);
    while (p->replicas.size() < least) {
      const auto to = coldest_without(*p);
      insert(p->replicas, to);
      insert(p->home, to);
    }
    while (p->replicas.size() > most)
      p->replicas.erase(
          std::max_element(p->replicas.begin(), p->replicas.end(),
                           [&](std::uint16_t a, std::uint16_t b) { return on[a] < on[b]; }));
    share(*p, 1);
  }
}

piece slice_plan::cut(piece& p, key64 at) const {
  piece rest = p;
  rest.first = at;
  p.last = at - 1;
  p.load = load_of(p.first, p.last);
  rest.load = load_of(rest.first, rest.last);
  return rest;
}

void slice_plan::split_hot() {
  std::vector<piece> done;
  auto room = slots_max() > slots() ? slots_max() - slots() : 0;
  std::vector<piece> open(pieces_.rbegin(), pieces_.rend());
  while (!open.empty()) {
    auto p = std::move(open.back());
    open.pop_back();
    if (room < p.replicas.size() || p.each() <= tau() || !can_split(p)) {
      done.push_back(std::move(p));
      continue;
    }
    room -= p.replicas.size();
    // A key that is hot by itself gets a slice of its own; else in the middle.
    auto at = p.first + (p.last - p.first) / 2 + 1;
    for (const auto& hot : load_.keys_in(p.first, p.last))
      if (hot.load / static_cast<double>(p.replicas.size()) > tau()) {
        at = hot.key > p.first ? hot.key : hot.key + 1;
        break;
      }
    open.push_back(cut(p, at));
    open.push_back(std::move(p));
  }
  pieces_ = std::move(done);
}

void slice_plan::join(piece& into, const piece& next) {
  into.last = next.last;
  into.load += next.load;
}

template <class May>
void slice_plan::merge(std::size_t least, May&& may) {
  auto count = slots();
  std::vector<piece> kept;
  for (auto& p : pieces_) {
    if (!kept.empty() && count >= least + p.replicas.size() && may(kept.back(), p)) {
      count -= p.replicas.size();
      join(kept.back(), p);
    } else {
      kept.push_back(std::move(p));
    }
  }
  pieces_ = std::move(kept);
}

void slice_plan::merge_cold() {
  const auto cold = [&](const piece& a, const piece& b) {
    // Half of what is split: the same slices are not split again at once.
    return (a.load + b.load) / static_cast<double>(a.replicas.size()) <= tau() / 2;
  };
  merge(limits_.slices_min * healthy_.size(), [&](const piece& a, const piece& b) {
    return a.replicas == b.replicas && a.home == b.home && cold(a, b);
  });
  // Still too many: the smaller one follows the larger, as far as merges may move keys.
  merge(slots_max(), [&](piece& a, const piece& b) {
    if (a.replicas == b.replicas && a.home == b.home) return true;
    const auto& mover = a.load < b.load ? a : b;
    const auto& stays = a.load < b.load ? b : a;
    if (merge_churn_ + mover.keys() > limits_.merge_churn_max) return false;
    merge_churn_ += mover.keys();
    a.home = a.replicas = stays.replicas;
    return true;
  });
}

void slice_plan::split_to_minimum() {
  const auto least = limits_.slices_min * healthy_.size();
  auto count = slots();
  const auto colder = [&](std::size_t a, std::size_t b) {
    return pieces_[a].load != pieces_[b].load ? pieces_[a].load < pieces_[b].load : a > b;
  };
  std::priority_queue<std::size_t, std::vector<std::size_t>, decltype(colder)> hottest{colder};
  for (std::size_t i = 0; i < pieces_.size(); ++i)
    if (can_split(pieces_[i])) hottest.push(i);
  while (count < least && !hottest.empty()) {
    const auto i = hottest.top();
    hottest.pop();
    auto& p = pieces_[i];
    auto rest = cut(p, p.first + (p.last - p.first) / 2 + 1);
    count += p.replicas.size();
    if (can_split(p)) hottest.push(i);
    pieces_.push_back(std::move(rest));
    if (can_split(pieces_.back())) hottest.push(pieces_.size() - 1);
  }
  std::sort(pieces_.begin(), pieces_.end(),
            [](const piece& a, const piece& b) { return a.first < b.first; });
}

void slice_plan::merge_same() {
  merge(limits_.slices_min * healthy_.size(), [&](const piece& a, const piece& b) {
    return a.replicas == b.replicas &&
           (a.load + b.load) / static_cast<double>(a.replicas.size()) <= tau() / 2;
  });
}

}  // namespace troupe::control
