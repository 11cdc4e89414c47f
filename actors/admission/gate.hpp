#pragma once

#include "actors/admission/account.hpp"
#include "actors/admission/budget_holder.hpp"
#include "actors/admission/capacity_window.hpp"
#include "actors/admission/crowding.hpp"
#include "actors/admission/drain_rate.hpp"
#include "actors/admission/fair_queue.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::admission {

/// Of all requests that wait for one model at one gateway, in one class and those above. A tenant
/// may have as much of it waiting as is free besides (dynamic thresholds, Choudhury & Hahne 1998):
/// one alone half of it, two a third each; and whoever comes finds some.
inline constexpr double queued_mu_max = 10'000;

/// A request may wait so much longer than it was told it would: a word to the owner and back.
inline constexpr milliseconds wait_slack{100};
/// What is told who is refused in a lasting crowd: there will be a place soon, but not for all.
inline constexpr seconds retry_after_crowded{0.9};
/// What a client is told where nothing can be estimated yet.
inline constexpr seconds retry_after_unknown{1.0};

/// What a tenant may do with a model.
struct tenant_limits {
  std::string tenant;
  std::string model;
  double guaranteed_per_minute = 0;  ///< MU
  double burst = 0;                  ///< MU
  double floor_per_minute = 0;       ///< MU of each gateway that hears of no owner
  double best_effort_weight = 0;     ///< 0: nothing above what is guaranteed
  std::uint32_t open_max = 0;        ///< over all gateways; 0: no limit
  std::uint8_t priority = 0;
  milliseconds wait_max{0};  ///< a request that would wait longer is refused at once
};

/// Incarnations of holders and owners of budgets, in one of the actor that has them: one for each
/// set of limits. Those of an actor are this many times its generation, and on.
inline constexpr std::uint64_t sets_max = 256;

/// Of one budget: `acme/llama`.
std::string budget_name(const std::string& tenant, const std::string& model);

struct arrival {
  std::uint64_t id = 0;
  std::string tenant;
  std::string model;
  double mu = 0;  ///< as reserved
  std::uint64_t prompt_tokens = 0;
  time_point deadline{};
  std::uint32_t places = 1;  ///< answers that are sampled at once
  bool crowded = false;      ///< its tenant has all waiting that the node has room for
};

/// Where a tenant stands with a model, for its client.
struct standing {
  double limit_per_minute = 0;  ///< MU
  double remaining = 0;         ///< MU
  seconds reset{0};             ///< until nothing of the burst is used
};

struct refusal {
  const char* reason = "";  ///< machine-readable, stable
  int http_status = 429;
  seconds retry_after{0};
  std::string message;
};

/// What became of a request: it begins (`why` is empty), or it never does.
struct verdict {
  std::uint64_t id = 0;
  std::optional<refusal> why;
};

/// Admission at one gateway: tenants' limits first, then the queue for capacity. Pure: time is
/// passed in. Every request that has begun ends by `ended` exactly once; then nothing is left of
/// it.
class gate {
 public:
  gate(std::vector<tenant_limits> limits, std::string gateway, std::vector<std::string> gateways,
       std::uint64_t incarnation, time_point now);

  /// True: it waits, or has begun with the next `pump`. False: refused, for the reason in `why`.
  bool arrive(const arrival& a, time_point now, refusal& why);
  /// Whether a request like this would not be refused now; nothing is taken. For whoever checks
  /// what refusals promise.
  struct standing_query {
    std::string tenant;
    std::string model;
    double mu = 0;
    time_point deadline{};
  };
  bool would_admit(const standing_query& q, time_point now);
  /// Who begins now, and whose time is over.
  std::vector<verdict> pump(time_point now);
  /// Of one model only.
  std::vector<verdict> pump(const std::string& model, time_point now);
  /// It has its first token.
  void prefilled(std::uint64_t id);
  /// Its place is free, before it is known what it cost.
  void over(std::uint64_t id, time_point now);
  /// With what it really cost, in MU: less than reserved comes back. False: it had not begun; it
  /// waited, and does no longer.
  bool ended(std::uint64_t id, double mu, time_point now);

  /// Of a model, by the directory and the workers' reports.
  void supply(const std::string& model, const capacity_window::supply& s, double mu_per_second);

  standing where(const std::string& tenant, const std::string& model, time_point now);
  bool knows(const std::string& tenant, const std::string& model) const;

  /// Words to owners that are due.
  struct outgoing {
    std::string owner;
    std::string budget;
    holder_word word;
  };
  std::vector<outgoing> words(time_point now);
  /// Of one tenant and model only: what a request that has just come, begun or ended asks for.
  void words_of(const std::string& tenant, const std::string& model, time_point now,
                std::vector<outgoing>& out);
  void answered(const std::string& budget, const std::string& by, const owner_word& in,
                time_point now);
  void reachable(const std::string& gateway, bool is, time_point now);

  /// Other limits, from now on. A tenant that is not among them is unknown; what it has running
  /// goes on, and what it has waiting begins or is too late.
  void set_limits(std::vector<tenant_limits> limits, time_point now);

  std::vector<tenant_account> accounts(time_point now);
  std::size_t open() const { return running_.size(); }
  std::size_t waiting() const { return waiting_.size(); }
  double reserved_mu() const;

 private:
  struct party {
    tenant_limits limits;
    std::unique_ptr<budget_holder> budget;  ///< null: nothing is guaranteed, and no cap
    std::uint32_t open = 0;
    std::uint64_t admitted = 0;
    std::map<std::string, std::uint64_t> refused;
    double charged = 0;
    double reserved = 0;
    double mean_mu = 0;           ///< of its requests, lately; 0: none yet
    seconds mean_run{0};          ///< from a request's begin until its place is free; 0: not known
    time_point last_over{};       ///< when one of its places became free
    std::uint32_t unsettled = 0;  ///< begun, and not `ended`
    part_lately alone;            ///< of its best-effort requests, those that found none waiting
    bool known = true;            ///< the cluster file has it (still)
  };
  struct model_state {
    fair_queue queue;
    capacity_window window;
    drain_rate drain;
    bool waited = false;     ///< ever since the last one began
    drain_rate best_effort;  ///< what guaranteed work leaves
    bool best_effort_waited = false;
    crowding crowd;                  ///< of best-effort work
    std::vector<verdict> displaced;  ///< not told yet
  };
  struct waiting_arrival : arrival {
    time_point since{};
  };
  struct running {
    party* who = nullptr;
    model_state* model = nullptr;
    // As it began: limits may have changed since.
    service_class how = service_class::guaranteed;
    std::uint8_t priority = 0;
    double weight = 1;
    double mu = 0;
    std::uint64_t prompt_tokens = 0;
    std::uint32_t places = 1;
    time_point since{};
    bool prefilled = false;
    bool over = false;
  };
  using key = std::pair<std::string, std::string>;

  queued_request place_of(party& p, const model_state& m, std::uint64_t id, double mu,
                          time_point deadline, time_point now);
  refusal too_late(party& p, model_state& m, const queued_request& r, time_point now);
  refusal queue_full(const party& p, const model_state& m, const queued_request& r) const;
  bool check_own(party& p, const model_state& m, const queued_request& r, time_point now,
                 refusal& why);
  bool check_capacity(const party& p, const model_state& m, const queued_request& r, time_point now,
                      refusal& why) const;
  party& at(const std::string& tenant, const std::string& model) {
    return parties_.at({tenant, model});
  }
  bool has_place(const party& p) const;
  bool may_begin(const queued_request& r, const std::string& model, time_point now);
  void begin(const queued_request& r, const std::string& model, model_state& m, time_point now);
  void demote(const std::string& model, model_state& m, time_point now);
  void promote(const std::string& model, model_state& m, time_point now);
  static double guaranteed_waiting(const party& p, const model_state& m);
  static double usual_mu(const party& p, double mu);
  static void give_prompt_back(running& r);
  seconds concurrency_wait(const party& p, const model_state& m, time_point now) const;
  void pump(const std::string& model, model_state& m, time_point now, std::vector<verdict>& out);
  void word_of(const key& name, party& p, time_point now, std::vector<outgoing>& out);
  void add(tenant_limits l, time_point now);
  bool is_over(const key& name, const party& p) const;
  void forget_if_over(const key& name);
  seconds budget_wait(party& p, const model_state& m, double mu, time_point now);
  seconds capacity_wait(const model_state& m, const queued_request& r, time_point now) const;
  bool fresh_only(const party& p, const model_state& m, const queued_request& r,
                  time_point now) const;
  void displace(party& p, model_state& m, const queued_request& by);

  std::string gateway_;
  std::vector<std::string> gateways_;
  std::uint64_t incarnation_;
  std::map<std::string, bool> reachable_;
  std::map<key, party> parties_;
  std::map<std::string, model_state> models_;
  std::map<std::uint64_t, running> running_;
  std::map<std::uint64_t, waiting_arrival> waiting_;
};

}  // namespace troupe::admission
