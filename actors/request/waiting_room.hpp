#pragma once

#include "actors/admission/gate.hpp"
#include "actors/capacity/cost_model.hpp"
#include "actors/capacity/output_forecast.hpp"
#include "actors/request/holdings.hpp"
#include "actors/request/submission.hpp"

#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe::request {

/// A hash of a request's id, which is random.
struct id_hash {
  std::size_t operator()(const request_id& id) const noexcept {
    return static_cast<std::size_t>(id.high ^ (id.low * 0x9e3779b97f4a7c15ULL));
  }
};

/// The requests of tenants before they begin, and what those that run have reserved: the hub's side
/// of the admission gate. Whoever begins ends by `settled` exactly once. Pure: time is passed in.
class waiting_room {
 public:
  using time_point = troupe::admission::time_point;

  waiting_room(std::vector<troupe::admission::tenant_limits> limits, std::string host,
               std::vector<std::string> gateways, std::uint64_t incarnation, time_point now);

  struct guest {
    std::shared_ptr<submission> what;
    std::shared_ptr<ticket> place;
  };
  /// What became of one: it begins now, or never does.
  struct outcome {
    guest who;
    std::optional<failure> why;
  };
  /// Prices for a request, and for its model's prompts.
  struct terms {
    const capacity::cost_model& price;
    const capacity::output_forecast& forecast;
    double bytes_per_token = 4;
    /// What the node has left, the request taken off. A tenant may have as much waiting as that, so
    /// that whoever comes finds some.
    std::uint64_t free_requests = std::numeric_limits<std::uint64_t>::max();
    std::uint64_t free_bytes = std::numeric_limits<std::uint64_t>::max();
  };
  /// It waits, or is among the outcomes, which may have others, too.
  std::vector<outcome> arrive(guest who, const terms& t, time_point now);
  /// Whether a request like this would not be refused now; nothing is taken. For whoever checks
  /// what refusals promise.
  bool would_admit(const submission& s, const terms& t, time_point now);
  /// Whoever can begin now, or is too late, of one model or of all (empty).
  std::vector<outcome> pump(const std::string& model, time_point now);
  /// Its client is gone. None: it does not wait (any more).
  std::optional<guest> leave(const request_id& id, time_point now);

  // -- requests that have begun; nothing happens for others ------------------------

  /// It has its first token.
  void prefilled(const request_id& id);
  /// Its place is free. What it has cost is not known yet.
  void over(const request_id& id, time_point now);
  void settled(const request_id& id, double mu, time_point now);

  troupe::admission::gate& gate() { return gate_; }
  const std::map<std::uint64_t, guest>& waiting() const { return waiting_; }
  /// What a tenant has waiting for a model; none of nothing.
  struct crowd {
    std::uint64_t requests = 0;
    std::uint64_t bytes = 0;
  };
  const std::map<std::pair<std::string, std::string>, crowd>& crowds() const { return crowds_; }
  std::size_t begun() const { return numbers_.size() - waiting_.size(); }

 private:
  std::optional<std::uint64_t> number_of(const request_id& id) const;
  bool crowded(const std::string& tenant, const terms& t) const;
  troupe::admission::arrival arrival_of(const submission& s, const terms& t, time_point now) const;
  guest take(std::map<std::uint64_t, guest>::iterator i);
  outcome refused(guest who, const troupe::admission::refusal& why, time_point now);
  void tell_standing(const guest& who, time_point now);
  std::vector<outcome> outcomes(const std::vector<troupe::admission::verdict>& all, time_point now);

  troupe::admission::gate gate_;
  std::mt19937_64 random_;
  std::uint64_t last_number_ = 0;
  std::unordered_map<request_id, std::uint64_t, id_hash> numbers_;  ///< waiting or begun
  std::map<std::uint64_t, guest> waiting_;
  std::map<std::pair<std::string, std::string>, crowd> crowds_;  ///< by tenant and model
};

/// Of all its prompts.
std::uint64_t bytes_of(const submission& s);

/// What a request will cost at most, most probably: nothing cached, each answer as long as nine in
/// ten of its tenant's. Tokens of all its prompts in `prompt_tokens`.
double reserve_mu(const submission& s, const waiting_room::terms& t, std::uint64_t& prompt_tokens);

}  // namespace troupe::request
