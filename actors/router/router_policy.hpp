#pragma once

#include "actors/directory/directory_state.hpp"
#include "actors/router/session_book.hpp"
#include "topology/topology.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

namespace troupe::router {

/// Constants of a shard.
struct router_limits {
  /// A suffix up to this is computed by decode itself.
  std::uint32_t decode_prefills_tokens_max = 64;
  /// Leases that are open at once; above it requests are refused (503).
  std::size_t leases_max = 65'536;
  /// Hashes remembered per worker; the oldest knowledge is not kept in order, so above it further
  /// ones are ignored.
  std::size_t blocks_per_worker_max = 1'000'000;
  /// Sessions whose last workers are remembered; the longest quiet one is forgotten first.
  std::size_t sessions_max = 65'536;
};

/// Until a model's prompts have been measured.
inline constexpr float default_bytes_per_token = 4.0F;
/// What a measurement may be; others are a worker's mistake and are not believed.
inline constexpr float bytes_per_token_min = 0.1F;
inline constexpr float bytes_per_token_max = 1'000.0F;
/// Answers are counted up to this: most end long before their `max_tokens`.
inline constexpr std::uint32_t answer_tokens_counted_max = 512;
/// KV of so many tokens is moved in the time that one takes to be computed.
inline constexpr double transfer_tokens_per_compute_token = 16;
/// The pair that served a session last is preferred to others that have up to this much less work,
/// in tokens: what it keeps of the session may be more than the chain can tell.
inline constexpr double session_bonus_tokens = 512;
/// After a gap, what a worker still says before everything comes again is dropped; each so many
/// messages it is asked once more.
inline constexpr std::uint32_t resync_again_messages = 64;

/// A refusal's code: at each worker there is already a prompt under suspicion.
inline constexpr const char* quarantine_full = "quarantine_full";

struct route_query {
  std::string
      host;  ///< of the request actor, for topology and for giving leases back when it is lost
  std::uint64_t incarnation = 0;  ///< of that host's hub; larger is newer, 0: not known
  std::string model;
  std::uint32_t prompt_bytes = 0;
  std::vector<std::uint64_t> chain;
  std::uint32_t max_tokens = 0;
  std::uint32_t choices = 1;
  std::vector<std::string> exclude;  ///< workers that failed it, the latest last
  std::uint32_t resumed_tokens = 0;
  std::string session;  ///< the client's own name for it; empty: none
  /// A running stream leaves this worker, and looks for one that can take its KV; empty: none does.
  std::string move_from;
  /// Under suspicion of crashing engines: to workers that have no other such prompt.
  bool quarantine = false;
};

enum class plan : std::uint8_t { local, full, from_position, decode_prefills, move };

struct route_choice {
  plan how = plan::local;
  directory::entry prefill;  ///< name empty: none
  directory::entry decode;
  std::uint64_t lease = 0;
  std::string reason;
};

struct route_refusal {
  int http_status = 503;
  std::string code;
  std::string message;
  std::uint32_t retry_after_ms = 0;
};

/// What a worker says of itself.
struct worker_report {
  std::uint32_t running = 0;
  std::uint32_t queued = 0;
  std::uint64_t queued_tokens = 0;
  std::uint32_t kv_used = 0;
  std::uint32_t kv_cached = 0;
  std::uint32_t kv_total = 0;
  std::uint64_t prefilled_tokens = 0;
  std::uint64_t sampled_tokens = 0;
  float bytes_per_token = 0;
  bool idle = false;
};

/// Chooses workers: least outstanding work first, the nearest pair among equals, prefixes counted
/// as work saved, a session's last pair preferred a little. Pure.
///
/// A shard's view of a worker is what it has leased to it itself, and what the worker reports.
/// Leases end by release, with their requester's host or hub, and with their worker's generation;
/// nothing else resets them.
class router_policy {
 public:
  /// `first_lease`: where the numbers of leases begin. Each incarnation of a shard needs its own,
  /// lest a release meant for an earlier one frees a lease of this one.
  router_policy(router_limits limits, std::map<std::string, topology::place> places,
                std::vector<std::string> models, std::uint64_t first_lease);

  /// The directory changed.
  void update(const directory::change& c);
  /// A host is lost: what its requests had leased is free.
  void lose_host(const std::string& host);
  /// A host's hub has said something. What its earlier incarnations had leased is free: their
  /// routes may have lain in a mailbox, or have found nobody, and nobody would give them back.
  void hub_speaks(const std::string& host, std::uint64_t incarnation);

  std::variant<route_choice, route_refusal> decide(const route_query& q);
  void release(std::uint64_t lease);
  /// The prefill worker's share only: decode goes on.
  void release_prefill(std::uint64_t lease);
  /// The prompt has proved harmless; it goes on.
  void clear(std::uint64_t lease);

  void report(const std::string& worker, std::uint64_t generation, const worker_report& r);
  /// Numbered messages; false: there is a gap, ask for everything again.
  [[nodiscard]] bool prefixes(const std::string& worker, std::uint64_t generation,
                              std::uint64_t sequence, bool reset,
                              const std::vector<std::uint64_t>& added,
                              const std::vector<std::uint64_t>& dropped);

  struct worker_view {
    directory::entry entry;
    worker_report last;
    bool reported = false;
    std::uint64_t leased_tokens = 0;
    std::uint32_t leases = 0;
    std::size_t blocks = 0;
  };
  std::vector<worker_view> workers() const;
  struct lease_view {
    std::uint64_t id = 0;
    std::string host;
    std::uint64_t incarnation = 0;  ///< of that host's hub
    std::string prefill;            ///< empty: none, or its share is done
    std::string decode;
    std::uint64_t tokens = 0;  ///< of both
  };
  std::vector<lease_view> leases() const;
  std::size_t open_leases() const { return leases_.size(); }

 private:
  struct worker {
    directory::entry entry;
    worker_report last;
    bool reported = false;
    std::uint64_t leased_tokens = 0;
    std::uint32_t leases = 0;
    std::uint32_t quarantined = 0;  ///< of the leases: 0 or 1, but for a worker out of sight
    std::unordered_set<std::uint64_t> blocks;
    std::uint64_t next_event = 0;
    std::uint32_t unheeded = 0;  ///< messages since a gap
  };
  struct lease {
    std::string host;
    std::string prefill;
    std::string decode;
    std::uint64_t prefill_tokens = 0;
    std::uint64_t decode_tokens = 0;
    std::uint64_t prefill_generation = 0;
    std::uint64_t decode_generation = 0;
    std::uint64_t incarnation = 0;
    bool quarantine = false;

    void put_on(worker& w, std::uint64_t tokens) const {
      w.leased_tokens += tokens;
      ++w.leases;
      if (quarantine) ++w.quarantined;
    }
    void take_from(worker& w, std::uint64_t tokens) const {
      w.leased_tokens -= tokens;
      --w.leases;
      if (quarantine) --w.quarantined;
    }
  };
  struct candidate {
    const worker* w = nullptr;
    std::uint32_t cached = 0;  ///< tokens
    double work = 0;           ///< tokens ahead of ours
    std::size_t failed = 0;    ///< its place among those that failed this request, from 1; 0: none
    unsigned slow = 0;         ///< 1: it is far slower than usual
  };
  struct option {
    plan how;
    const candidate* prefill;
    const candidate* decode;
    unsigned excluded;   ///< workers of it that failed this request before
    std::size_t failed;  ///< the sum of their places among those that did
    unsigned slow;       ///< workers of it that are far slower than usual
    double score;        ///< work in tokens, less the session's bonus
    topology::distance far;
    bool last_pair = false;  ///< of the session
  };

  /// Gives the pair that served the session last its bonus, if it is among `options`.
  void prefer_last_pair(const route_query& q, std::vector<option>& options) const;
  std::uint32_t cached_tokens(const worker& w, const route_query& q, float bytes_per_token) const;
  std::vector<candidate> ready(const route_query& q, msg::Role role) const;
  float bytes_per_token(const std::string& model) const;
  route_refusal refusal(const route_query& q) const;
  topology::distance apart(const std::string& host_a, const std::string& host_b) const;
  std::variant<route_choice, route_refusal> decide_move(const route_query& q, std::uint64_t answer);
  void grant(route_choice& c, const route_query& q, std::uint64_t prefill_tokens,
             std::uint64_t decode_tokens);
  template <class Which>
  void release_all(Which&& which);
  /// Null when another incarnation has the name, or none.
  worker* incarnation(const std::string& name, std::uint64_t generation);
  /// Calls `f(worker, tokens)` for each side of a lease whose worker is still the incarnation that
  /// it was granted for.
  template <class F>
  void for_each_side(const lease& l, F&& f);

  router_limits limits_;
  std::map<std::string, topology::place> places_;
  std::vector<std::string> models_;
  std::map<std::string, worker> workers_;
  std::unordered_map<std::uint64_t, lease> leases_;
  std::map<std::string, std::uint64_t> incarnations_;  ///< of hubs, by host of the cluster
  session_book sessions_;
  std::uint64_t next_lease_;
};

}  // namespace troupe::router
