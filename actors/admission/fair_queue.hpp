#pragma once

#include "actors/admission/budget.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::admission {

/// Guaranteed work goes before best-effort work that waits, never before work that runs.
enum class service_class : std::uint8_t { guaranteed, best_effort };

/// A request that waits for capacity.
struct queued_request {
  std::uint64_t id = 0;
  std::string tenant;
  service_class how = service_class::guaranteed;
  std::uint8_t priority = 0;  ///< within a class; larger goes first
  double weight = 1;          ///< of the tenant, > 0
  double mu = 0;              ///< as reserved
  time_point deadline{};      ///< it has begun by then, or not at all
};

/// Requests of one model that wait at one gateway, and who is next: classes, then priorities, then
/// the virtual token counter (VTC, Sheng et al., OSDI'24) among the tenants of one level, then
/// arrival. Work-conserving: `next` has one whenever anybody waits who may begin.
///
/// A counter is the service that a tenant had, in MU by weight: reserved when a request begins,
/// corrected when it ends. The tenant with the least goes first. One that comes back from idleness
/// is lifted to the least of those that wait, or to whoever left last: idleness earns nothing.
/// Between two tenants that both have requests waiting, counters differ by no more than twice the
/// largest request by weight. Pure; one thread.
class fair_queue {
 public:
  void push(queued_request r);
  /// The tenants that may not begin one now (their own limits) are passed over. Takes it out.
  template <class MayBegin>
  std::optional<queued_request> next(MayBegin may_begin) {
    for (auto& [key, l] : levels_)
      if (auto* t = least(l, may_begin)) return take(l, *t);
    return std::nullopt;
  }
  /// More (or less, negative) than was reserved; also of requests that never waited.
  void charge(const std::string& tenant, service_class how, std::uint8_t priority, double weight,
              double mu);
  std::optional<queued_request> remove(std::uint64_t id);
  /// Those whose deadline has passed; taken out.
  std::vector<queued_request> take_late(time_point now);
  /// Guaranteed budget has come for a tenant's first best-effort request: it moves up.
  void promote(const std::string& tenant, std::uint8_t priority, double weight);

  /// The tenant's last guaranteed request waits for what nobody guarantees, before its others
  /// there. False: none waits.
  bool demote(const std::string& tenant, std::uint8_t priority, double weight);
  /// A tenant that has nothing here, and never will: its counters are of no use to anybody.
  void forget(const std::string& tenant);

  bool empty() const { return size_ == 0; }
  /// Whether a request of this class does.
  bool waits(service_class how) const;
  std::size_t size() const { return size_; }
  double mu() const;
  /// Of this class and those above.
  double mu_until(service_class how) const;
  double mu_of(const std::string& tenant) const;
  double mu_of(const std::string& tenant, service_class how) const;
  std::size_t size_of(const std::string& tenant) const;
  /// The tenant's next request of that class, null when none waits.
  const queued_request* first_of(const std::string& tenant, service_class how) const;
  /// MU that would begin before another request like this one, if all that wait stayed as they are:
  /// all of levels above; of its own, what others get until its tenant's counter has come to it.
  double mu_ahead(const queued_request& r) const;
  /// Those with a request of this class.
  std::vector<std::string> waiting_tenants(service_class how) const;
  /// In MU by weight.
  double counter(const std::string& tenant, service_class how, std::uint8_t priority) const;

 private:
  struct tenant_queue {
    std::string name;
    double weight = 1;
    double counter = 0;
    double mu = 0;
    std::deque<queued_request> waiting;
  };
  struct level {
    std::map<std::string, tenant_queue> tenants;
    double last_left = 0;  ///< counter of the tenant that stopped waiting last
  };
  /// Classes in order, larger priorities first.
  using level_key = std::pair<service_class, int>;
  static level_key key_of(service_class how, std::uint8_t priority) { return {how, -priority}; }

  template <class MayBegin>
  static tenant_queue* least(level& l, MayBegin may_begin) {
    tenant_queue* best = nullptr;
    for (auto& [name, t] : l.tenants)
      if (!t.waiting.empty() && (!best || t.counter < best->counter) &&
          may_begin(t.waiting.front()))
        best = &t;
    return best;
  }
  queued_request take(level& l, tenant_queue& t);
  void lift(level& l, tenant_queue& t);
  tenant_queue& tenant_of(level& l, const queued_request& r);
  void dropped(level& l, tenant_queue& t, double mu);

  std::map<level_key, level> levels_;
  std::size_t size_ = 0;
  time_point earliest_ = time_point::max();  ///< no deadline is before it
};

}  // namespace troupe::admission
