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
  for (const auto& e : c.added_or_changed) {
    if (!computes(e)) continue;
    auto& known = workers_[e.name];
    // While it starts again nothing is known of it that was not before.
    if (e.prefill_speed == 0 && e.decode_speed == 0 && known.entry.pool == e.pool) continue;
    known = {e, std::nullopt};
    models_.erase(e.model);
  }
}

capacity::cost_model cost_book::price_of(const std::string& model) const {
  double prefill = 0, decode = 0;
  std::string source;
  for (const auto& p : pools_) {
    if (p.model != model) continue;
    if (p.calibrated) return *p.calibrated;
    for (const auto& [name, w] : workers_) {
      if (w.entry.pool != p.name) continue;
      if (source.empty()) source = name;
      if (prefill == 0 && w.entry.role != msg::Role::DECODE) prefill = w.entry.prefill_speed;
      if (decode == 0 && w.entry.role != msg::Role::PREFILL) decode = w.entry.decode_speed;
    }
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
