#include "actors/admission/fair_queue.hpp"

#include <algorithm>
#include <limits>

namespace troupe::admission {

fair_queue::tenant_queue& fair_queue::tenant_of(level& l, const queued_request& r) {
  auto& t = l.tenants[r.tenant];
  if (t.name.empty()) t.name = r.tenant;
  t.weight = std::max(r.weight, 1e-9);
  return t;
}

void fair_queue::lift(level& l, tenant_queue& t) {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [name, other] : l.tenants)
    if (!other.waiting.empty()) least = std::min(least, other.counter);
  t.counter = std::max(t.counter,
                       least < std::numeric_limits<double>::infinity() ? least : l.last_left);
}

void fair_queue::push(queued_request r) {
  auto& l = levels_[key_of(r.how, r.priority)];
  auto& t = tenant_of(l, r);
  if (t.waiting.empty()) lift(l, t);
  t.mu += r.mu;
  earliest_ = std::min(earliest_, r.deadline);
  t.waiting.push_back(std::move(r));
  ++size_;
}

void fair_queue::dropped(level& l, tenant_queue& t, double mu) {
  --size_;
  t.mu = t.waiting.empty() ? 0 : t.mu - mu;
  if (t.waiting.empty()) l.last_left = t.counter;
}

queued_request fair_queue::take(level& l, tenant_queue& t) {
  auto r = std::move(t.waiting.front());
  t.waiting.pop_front();
  t.counter += r.mu / t.weight;
  dropped(l, t, r.mu);
  return r;
}

void fair_queue::charge(const std::string& tenant, service_class how, std::uint8_t priority,
                        double weight, double mu) {
  auto& l = levels_[key_of(how, priority)];
  auto& t = l.tenants[tenant];
  if (t.name.empty()) {
    t.name = tenant;
    lift(l, t);
  }
  t.weight = std::max(weight, 1e-9);
  t.counter += mu / t.weight;
}

std::optional<queued_request> fair_queue::remove(std::uint64_t id) {
  for (auto& [key, l] : levels_)
    for (auto& [name, t] : l.tenants)
      for (auto i = t.waiting.begin(); i != t.waiting.end(); ++i)
        if (i->id == id) {
          auto r = std::move(*i);
          t.waiting.erase(i);
          dropped(l, t, r.mu);
          return r;
        }
  return std::nullopt;
}

std::vector<queued_request> fair_queue::take_late(time_point now) {
  std::vector<queued_request> out;
  if (now < earliest_) return out;
  earliest_ = time_point::max();
  for (auto& [key, l] : levels_)
    for (auto& [name, t] : l.tenants)
      for (auto i = t.waiting.begin(); i != t.waiting.end();) {
        if (now < i->deadline) {
          earliest_ = std::min(earliest_, i->deadline);
          ++i;
          continue;
        }
        out.push_back(std::move(*i));
        i = t.waiting.erase(i);
        dropped(l, t, out.back().mu);
      }
  return out;
}

const queued_request* fair_queue::first_of(const std::string& tenant, service_class how) const {
  for (const auto& [key, l] : levels_) {
    if (key.first != how) continue;
    const auto i = l.tenants.find(tenant);
    if (i != l.tenants.end() && !i->second.waiting.empty()) return &i->second.waiting.front();
  }
  return nullptr;
}

std::vector<std::string> fair_queue::waiting_tenants(service_class how) const {
  std::vector<std::string> out;
  for (const auto& [key, l] : levels_)
    if (key.first == how)
      for (const auto& [name, t] : l.tenants)
        if (!t.waiting.empty()) out.push_back(name);
  return out;
}

double fair_queue::mu_of(const std::string& tenant, service_class how) const {
  double sum = 0;
  for (const auto& [key, l] : levels_)
    if (const auto i = l.tenants.find(tenant); key.first == how && i != l.tenants.end())
      sum += i->second.mu;
  return sum;
}

void fair_queue::promote(const std::string& tenant, std::uint8_t priority, double weight) {
  for (auto& [key, l] : levels_) {
    if (key.first != service_class::best_effort) continue;
    const auto i = l.tenants.find(tenant);
    if (i == l.tenants.end() || i->second.waiting.empty()) continue;
    auto r = std::move(i->second.waiting.front());
    i->second.waiting.pop_front();
    dropped(l, i->second, r.mu);
    r.how = service_class::guaranteed;
    r.priority = priority;
    r.weight = weight;
    return push(std::move(r));
  }
}

bool fair_queue::demote(const std::string& tenant, std::uint8_t priority, double weight) {
  // Levels are in order: the last is what it would begin last.
  for (auto level = levels_.rbegin(); level != levels_.rend(); ++level) {
    auto& [key, l] = *level;
    if (key.first != service_class::guaranteed) continue;
    const auto i = l.tenants.find(tenant);
    if (i == l.tenants.end() || i->second.waiting.empty()) continue;
    auto r = std::move(i->second.waiting.back());
    i->second.waiting.pop_back();
    dropped(l, i->second, r.mu);
    r.how = service_class::best_effort;
    r.priority = priority;
    r.weight = weight;
    auto& lower = levels_[key_of(r.how, r.priority)];
    auto& t = tenant_of(lower, r);
    if (t.waiting.empty()) lift(lower, t);
    t.mu += r.mu;
    t.waiting.push_front(std::move(r));
    ++size_;
    return true;
  }
  return false;
}

void fair_queue::forget(const std::string& tenant) {
  for (auto& [key, l] : levels_)
    if (const auto i = l.tenants.find(tenant); i != l.tenants.end() && i->second.waiting.empty())
      l.tenants.erase(i);
  std::erase_if(levels_, [](const auto& l) { return l.second.tenants.empty(); });
}

bool fair_queue::waits(service_class how) const {
  return std::any_of(levels_.begin(), levels_.end(), [&](const auto& l) {
    return l.first.first == how &&
           std::any_of(l.second.tenants.begin(), l.second.tenants.end(),
                       [](const auto& t) { return !t.second.waiting.empty(); });
  });
}

double fair_queue::mu_until(service_class how) const {
  double sum = 0;
  for (const auto& [key, l] : levels_)
    if (key.first <= how)
      for (const auto& [name, t] : l.tenants) sum += t.mu;
  return sum;
}

double fair_queue::mu() const {
  double sum = 0;
  for (const auto& [key, l] : levels_)
    for (const auto& [name, t] : l.tenants) sum += t.mu;
  return sum;
}

double fair_queue::mu_of(const std::string& tenant) const {
  double sum = 0;
  for (const auto& [key, l] : levels_)
    if (const auto i = l.tenants.find(tenant); i != l.tenants.end()) sum += i->second.mu;
  return sum;
}

std::size_t fair_queue::size_of(const std::string& tenant) const {
  std::size_t sum = 0;
  for (const auto& [key, l] : levels_)
    if (const auto i = l.tenants.find(tenant); i != l.tenants.end())
      sum += i->second.waiting.size();
  return sum;
}

double fair_queue::mu_ahead(const queued_request& r) const {
  const auto mine = key_of(r.how, r.priority);
  double sum = 0;
  for (const auto& [key, l] : levels_) {
    if (key > mine) break;
    if (key < mine) {
      for (const auto& [name, t] : l.tenants) sum += t.mu;
      continue;
    }
    const auto me = l.tenants.find(r.tenant);
    const double own = me == l.tenants.end() ? 0 : me->second.mu;
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [name, t] : l.tenants)
      if (!t.waiting.empty()) least = std::min(least, t.counter);
    double from = me == l.tenants.end() ? 0 : me->second.counter;
    if (own == 0)
      from = std::max(from, least < std::numeric_limits<double>::infinity() ? least : l.last_left);
    const double until = from + own / std::max(r.weight, 1e-9);
    sum += own;
    for (const auto& [name, t] : l.tenants)
      if (name != r.tenant && !t.waiting.empty())
        sum += std::clamp((until - t.counter) * t.weight, 0.0, t.mu);
  }
  return sum;
}

double fair_queue::counter(const std::string& tenant, service_class how,
                           std::uint8_t priority) const {
  const auto l = levels_.find(key_of(how, priority));
  if (l == levels_.end()) return 0;
  const auto i = l->second.tenants.find(tenant);
  return i == l->second.tenants.end() ? 0 : i->second.counter;
}

}  // namespace troupe::admission
