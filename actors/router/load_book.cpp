#include "actors/router/load_book.hpp"

#include "actors/control/load_map.hpp"

#include <cmath>
#include <numeric>
#include <utility>

namespace troupe::router {

namespace {

constexpr double window_seconds = std::chrono::duration<double>(control::load_window).count();
/// Weights grow with time; before they lose precision all begin anew.
constexpr double weight_max = 1e6;
/// Less of a slice is nothing: what has faded is not told for ever.
constexpr double load_told_min = 1e-6;

}  // namespace

load_book::load_book(std::shared_ptr<const control::assignment> a)
    : assigned_(std::move(a)), slices_(assigned_->slices().size()) {}

void load_book::assign(std::shared_ptr<const control::assignment> next) {
  std::vector<control::range_load> ranges;
  for (std::size_t i = 0; i < slices_.size(); ++i)
    if (slices_[i] > 0)
      ranges.push_back({assigned_->slices()[i].first, assigned_->last_of(i), slices_[i]});
  std::vector<control::key_load> keys;
  for (const auto& c : keys_.above(0)) keys.push_back({c.key, c.certain()});
  const control::load_map known{ranges, keys};
  std::vector<double> slices(next->slices().size());
  for (std::size_t i = 0; i < slices.size(); ++i)
    slices[i] = known.of(next->slices()[i].first, next->last_of(i));
  slices_ = std::move(slices);
  assigned_ = std::move(next);
}

double load_book::weight(time_point now) const {
  return std::exp(std::chrono::duration<double>(now - since_).count() / window_seconds);
}

double load_book::per_second(double sum, time_point now) const {
  return sum / weight(now) / window_seconds;
}

void load_book::note(control::key64 key, double seconds, time_point now) {
  if (requests_ == 0) since_ = now;
  auto w = weight(now);
  if (w > weight_max) {
    for (auto& s : slices_) s /= w;
    keys_.scale(1 / w);
    requests_ /= w;
    since_ = now;
    w = 1;
  }
  requests_ += w;
  slices_[assigned_->slice_of(key)] += seconds * w;
  keys_.add(key, seconds * w);
}

void load_book::tell(control::shard_load& out, time_point now) const {
  out.goes_by = assigned_->number();
  out.ranges.clear();
  out.keys.clear();
  if (requests_ == 0) return;
  out.requests_per_second = per_second(requests_, now);
  for (std::size_t i = 0; i < slices_.size(); ++i)
    if (const auto load = per_second(slices_[i], now); load > load_told_min)
      out.ranges.push_back({assigned_->slices()[i].first, assigned_->last_of(i), load});
  const auto total = std::accumulate(slices_.begin(), slices_.end(), 0.0);
  for (const auto& c : keys_.above(total / control::keys_told_max)) {
    if (out.keys.size() == control::keys_told_max) break;
    if (const auto load = per_second(c.certain(), now); load > load_told_min)
      out.keys.push_back({c.key, load});
  }
}

}  // namespace troupe::router
