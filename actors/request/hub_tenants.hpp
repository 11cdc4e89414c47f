#pragma once

// Inside of the request hub: tenants' limits, and the queue before capacity.

#include "actors/admission/gate.hpp"
#include "actors/directory/directory_actor.hpp"
#include "actors/link/post_office.hpp"
#include "actors/request/hub_accounts.hpp"
#include "actors/request/supply_book.hpp"
#include "actors/request/tenant_metrics.hpp"
#include "actors/request/waiting_room.hpp"

#include <caf/event_based_actor.hpp>

#include <prometheus/registry.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace troupe::request {

struct requests_report;

/// The hub to itself: tenants' limits are to be looked at.
using tenants_atom = caf::atom_constant<caf::atom("hubtenants")>;

/// Requests of tenants before they begin. Until there are tenants nobody waits here, and nothing of
/// this costs anything. A part of the hub's state, on its thread.
class hub_tenants {
 public:
  using time_point = troupe::admission::time_point;

  struct options {
    std::string host;
    std::vector<std::string> models;
    std::vector<std::string> gateways;
    std::map<std::string, std::uint32_t> step_tokens;
    std::shared_ptr<prometheus::Registry> metrics;
  };
  /// `begin`: a request's turn has come.
  hub_tenants(caf::event_based_actor* self, std::shared_ptr<const request_context> context,
              options o, hub_accounts& accounts,
              std::function<void(const waiting_room::guest&)> begin);

  void set_limits(std::vector<troupe::admission::tenant_limits> limits);
  /// False: nobody waits, it may begin at once.
  bool arrive(const waiting_room::guest& who);
  /// True: its client went away while it waited here.
  bool cancel(const cancel_request& x);
  /// These have their first token: others' prompts can be computed.
  void prefilled(const std::vector<request_id>& all);
  bool any() const { return room_ != nullptr; }
  /// Others can begin in its place.
  void over(const ended_request& x);
  void settled(const ended_request& x, const settlement& s);
  void answered(const link::origin& from, msg::BudgetAnswers::Reader in);
  void reported(msg::WorkerReport::Reader in);
  void changed(const directory::directory_changed& x);
  /// In answer to `tenants_atom`.
  void look();
  void report(requests_report& r) const;

 private:
  time_point now() const;
  void carry_out(std::vector<waiting_room::outcome> all);
  void say_refused(const submission& s, const failure& why);
  void ask_for(const std::string& tenant, const std::string& model);
  void send(const std::vector<troupe::admission::gate::outgoing>& words);
  void refresh_stale_supply();
  void refresh_supply();
  void note_gateway(const directory::entry& e, bool there);

  caf::event_based_actor* self_;
  std::shared_ptr<const request_context> context_;
  options options_;
  hub_accounts& accounts_;
  std::function<void(const waiting_room::guest&)> begin_;
  std::unique_ptr<waiting_room> room_;  ///< null: there are no tenants, and none have been
  std::unique_ptr<tenant_metrics> counts_;
  supply_book supply_;
  bool supply_changed_ = true;
  time_point next_refresh_{};         ///< of what engines can take, at the earliest
  std::uint64_t refused_unsaid_ = 0;  ///< since the last line about refusals
  time_point next_refused_line_{};
  time_point next_full_look_{};  ///< at tenants' budgets
};

}  // namespace troupe::request
