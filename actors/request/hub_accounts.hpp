#pragma once

// Inside of the request hub: accounts of requests that are over.

#include "actors/capacity/output_forecast.hpp"
#include "actors/request/cost_book.hpp"
#include "actors/request/cost_metrics.hpp"
#include "actors/request/deadline_queue.hpp"
#include "actors/request/request_actor.hpp"
#include "actors/request/settlement.hpp"
#include "actors/request/waiting_room.hpp"
#include "gpu/engine/job_cost_wire.hpp"

#include <caf/event_based_actor.hpp>

#include <prometheus/registry.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <unordered_map>
#include <vector>

namespace troupe::request {

/// After a request's end its workers are waited for so long to tell what its jobs have cost; then
/// it is settled by what is known.
inline constexpr std::chrono::milliseconds costs_wait{3'000};
/// Requests that are over and wait for that; of more the oldest are settled by what is known.
inline constexpr std::size_t unsettled_max = 4'096;

/// The hub to itself: whoever has not told by now is not waited for.
using costs_atom = caf::atom_constant<caf::atom("hubcosts")>;

/// Requests that are over, until their workers have told what they have cost; the one place where a
/// request is accounted for. A part of the hub's state, on its thread.
class hub_accounts {
 public:
  using time_point = deadline_queue<request_id>::time_point;

  hub_accounts(caf::event_based_actor* self, std::shared_ptr<const request_context> context,
               std::vector<cost_book::pool> pools, std::shared_ptr<prometheus::Registry> metrics);

  /// Called once for each request, when it is settled.
  std::function<void(const ended_request&, const settlement&)> on_settled;

  /// True: it still owes costs, and is waited for.
  bool over(const std::shared_ptr<ended_request>& what);
  /// Every message that ends a job: its request may be over, and wait for this.
  template <class Schema>
  void told(typename Schema::Reader in) {
    if (unsettled_.empty()) return;
    const auto key = msg::read(in.getKey());
    if constexpr (std::is_same_v<Schema, msg::Rejected>)
      told(cost_told{in.getWorker().cStr(), key, {}});
    else if (in.hasCost())
      told(cost_told{in.getWorker().cStr(), key, engine::read(in.getCost())});
  }
  void told(const cost_told& x);
  /// In answer to `costs_atom`.
  void settle_unheard();

  std::size_t unsettled() const { return unsettled_.size(); }
  cost_book& costs() { return costs_; }
  const capacity::output_forecast& forecast() const { return forecast_; }

 private:
  void settle_late(const request_id& id);
  void settle(const ended_request& x);
  void wake(const std::optional<time_point>& when);

  caf::event_based_actor* self_;
  std::shared_ptr<const request_context> context_;
  cost_book costs_;
  cost_metrics counts_;
  capacity::output_forecast forecast_;
  std::unordered_map<request_id, std::shared_ptr<ended_request>, id_hash> unsettled_;
  deadline_queue<request_id> waited_for_;
};

}  // namespace troupe::request
