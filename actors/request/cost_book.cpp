#include "actors/request/cost_book.hpp"

#include <algorithm>

namespace troupe::request {

namespace {

bool computes(const directory::entry& e) {
  return e.role == msg::Role::PREFILL || e.role == msg::Role::DECODE || e.role == msg::Role::BOTH;
}

}  // namespace

const cost_book::pool* cost_book::find_pool(const std::string& name) const {
  const auto i = std::find_if(pools_.begin(), pools_.end(),
                              [&](const pool& p) { return p.name == name; });
  return i == pools_.end() ? nullptr : &*i;
}

/// One that is gone is remembered: what it did may be told by others, and its name comes back.
void cost_book::update(const directory::change& c) {
  for (const auto& e : c.removed)
    if (const auto i = workers_.find(e.name); i != workers_.end()) i->second.gone = true;
  for (const auto& e : c.added_or_changed) {
    if (!computes(e)) continue;
    auto& known = workers_[e.name];
    known.gone = false;
    // While it starts again nothing is known of it that was not before.
    if (e.prefill_speed == 0 && e.decode_speed == 0 && known.entry.pool == e.pool) continue;
    known = {e, std::nullopt, false};
    keep_first(e);
    models_.erase(e.model);
  }
}

void cost_book::keep_first(const directory::entry& e) {
  auto& s = speeds_[e.pool];
  if (!s.source.empty() && s.device_class != e.device_class) {
    if (has_class(e.pool, s.device_class)) return;
    s = {};
  }
  if (s.source.empty()) s.source = e.name;
  s.device_class = e.device_class;
  if (s.prefill == 0 && e.role != msg::Role::DECODE) s.prefill = e.prefill_speed;
  if (s.decode == 0 && e.role != msg::Role::PREFILL) s.decode = e.decode_speed;
}

bool cost_book::has_class(const std::string& pool, const std::string& device_class) const {
  return std::any_of(workers_.begin(), workers_.end(), [&](const auto& x) {
    const auto& w = x.second;
    return !w.gone && w.entry.pool == pool && w.entry.device_class == device_class;
  });
}

capacity::cost_model cost_book::price_of(const std::string& model) const {
  double prefill = 0, decode = 0;
  std::string source;
  for (const auto& p : pools_) {
    if (p.model != model) continue;
    if (p.calibrated) return *p.calibrated;
    const auto known = speeds_.find(p.name);
    if (known == speeds_.end()) continue;
    const auto& s = known->second;
    if (source.empty()) source = s.source;
    if (prefill == 0) prefill = s.prefill;
    if (decode == 0) decode = s.decode;
  }
  return capacity::cost_model::from_speeds(prefill, decode, {}, source);
}

const capacity::cost_model& cost_book::of_model(const std::string& model) {
  if (const auto i = models_.find(model); i != models_.end()) return i->second;
  return models_.emplace(model, price_of(model)).first->second;
}

const capacity::cost_model& cost_book::of_worker(const std::string& worker,
                                                 const std::string& model) {
  const auto i = workers_.find(worker);
  if (i == workers_.end()) return of_model(model);
  auto& known = i->second;
  if (!known.costs) {
    const auto* p = find_pool(known.entry.pool);
    const auto& e = known.entry;
    if (p != nullptr && p->calibrated)
      known.costs = p->calibrated;
    else if (e.prefill_speed > 0 || e.decode_speed > 0)
      known.costs = capacity::cost_model::from_speeds(e.prefill_speed, e.decode_speed,
                                                      e.device_class, e.name);
    else
      return of_model(model);
  }
  return *known.costs;
}

}  // namespace troupe::request
