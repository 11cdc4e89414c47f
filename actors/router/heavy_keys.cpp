#include "actors/router/heavy_keys.hpp"

#include <algorithm>
#include <utility>

namespace troupe::router {

heavy_keys::heavy_keys(std::size_t counters_max)
    : counters_max_(std::max<std::size_t>(1, counters_max)) {
  heap_.reserve(counters_max_);
  places_.reserve(counters_max_);
}

void heavy_keys::add(std::uint64_t key, double weight) {
  if (!(weight > 0)) return;
  if (const auto known = places_.find(key); known != places_.end()) {
    const auto i = known->second;
    heap_[i].weight += weight;
    return sink(i);
  }
  if (heap_.size() < counters_max_) {
    heap_.push_back({key, weight, 0});
    places_[key] = heap_.size() - 1;
    return rise(heap_.size() - 1);
  }
  // It takes the lightest one's place, and may have had as much as that before.
  auto& lightest = heap_.front();
  places_.erase(lightest.key);
  lightest = {key, lightest.weight + weight, lightest.weight};
  places_[key] = 0;
  sink(0);
}

void heavy_keys::scale(double by) {
  for (auto& c : heap_) {
    c.weight *= by;
    c.error *= by;
  }
}

std::vector<heavy_keys::counter> heavy_keys::above(double weight) const {
  std::vector<counter> all;
  for (const auto& c : heap_)
    if (c.certain() > weight) all.push_back(c);
  std::sort(all.begin(), all.end(), [](const counter& a, const counter& b) {
    return a.certain() != b.certain() ? a.certain() > b.certain() : a.key < b.key;
  });
  return all;
}

void heavy_keys::swap(std::size_t a, std::size_t b) {
  std::swap(heap_[a], heap_[b]);
  places_[heap_[a].key] = a;
  places_[heap_[b].key] = b;
}

void heavy_keys::sink(std::size_t i) {
  for (;;) {
    auto least = i;
    for (const auto child : {2 * i + 1, 2 * i + 2})
      if (child < heap_.size() && heap_[child].weight < heap_[least].weight) least = child;
    if (least == i) return;
    swap(i, least);
    i = least;
  }
}

void heavy_keys::rise(std::size_t i) {
  while (i > 0 && heap_[i].weight < heap_[(i - 1) / 2].weight) {
    swap(i, (i - 1) / 2);
    i = (i - 1) / 2;
  }
}

}  // namespace troupe::router
