#pragma once

#include "actors/capacity/cost_model.hpp"
#include "actors/directory/directory_state.hpp"
#include "actors/router/block_index.hpp"
#include "actors/router/cache_correction.hpp"
#include "actors/router/guess_book.hpp"
#include "actors/router/link_speeds.hpp"
#include "actors/router/prefix_rates.hpp"
#include "actors/router/session_book.hpp"
#include "actors/router/speed_meter.hpp"
#include "actors/router/work_meter.hpp"
#include "actors/router/worker_subsets.hpp"
#include "topology/topology.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

namespace troupe::router {

/// Constants of a shard.
struct router_limits {
  /// A suffix up to this is computed by decode itself.
  std::uint32_t decode_prefills_tokens_max = 64;
  /// Leases that are open at once; above it requests are refused (503).
  std::size_t leases_max = 65'536;
  /// Blocks remembered per worker; above it further ones are ignored.
  std::size_t blocks_per_worker_max = 1'000'000;
  /// Of all workers together.
  block_index_limits index;
  /// Sessions whose last workers are remembered; the longest quiet one is forgotten first.
  std::size_t sessions_max = 65'536;
  /// Shards of the cluster. What this one granted since a worker's report, the others are taken to
  /// have granted, too: they know the same.
  std::uint32_t shards = 1;
  /// A second of prefill keeps a worker from others' prompts, and what it computes displaces what
  /// they would find cached: its weight on top of the second that this prompt itself waits.
  double others_weight = 3;
  /// The same for each unit of congestion (busy / idle share of the workers that may be chosen, as
  /// the time in a queue grows with it), where that is more: in a fleet that is busy, work done
  /// twice delays everybody, in an idle one nobody.
  double crowded_weight = 60;
};

/// Until a model's prompts have been measured.
inline constexpr float default_bytes_per_token = 4.0F;
/// What a measurement may be; others are a worker's mistake and are not believed.
inline constexpr float bytes_per_token_min = 0.1F;
inline constexpr float bytes_per_token_max = 1'000.0F;
/// Answers are counted up to this: most end long before their `max_tokens`.
inline constexpr std::uint32_t answer_tokens_counted_max = 512;
/// The pair that served a session last is preferred to others by what these tokens take to be
/// computed: what it keeps of the session may be more than the chain can tell, and a session moves
/// only when that costs less than to stay.
inline constexpr std::uint32_t session_bonus_tokens = 512;
/// Where a model's engines do not say how large their KV is.
inline constexpr double default_kv_bytes_per_token = 65'536;
/// A report older than this says little of now: reports come each second.
inline constexpr std::chrono::milliseconds report_stale_after{5'000};
/// Reports closer to each other than this are one, for what was granted since.
inline constexpr std::chrono::milliseconds report_interval_min{500};
/// A worker that says nothing is unknown, not idle: it is taken to be as busy as the others that
/// do, up to this.
inline constexpr double unknown_queue_seconds_max = 1;
/// What others have queued there, by a report, is worked off at this speed until the next one: some
/// of the engine's time goes into answers.
inline constexpr double prefill_share_assumed = 0.75;
/// What is being decoded delays a newcomer's first token little, but each slows the others: the
/// weight of a second of it against one of prefill.
inline constexpr double decode_weight = 0.125;
/// Congestion is no more than that of workers that are busy for two thirds of the time: what comes
/// above it is the moment's queue.
inline constexpr double congestion_max = 2;
/// What so many prompts have begun with lately (`prefix_rates`) is not computed in vain at another
/// worker: those that follow find it there, too, instead of all waiting for the one that has it.
inline constexpr double popular_prompts = 4;
/// Conversations go on where they are: what a worker did lately it will have to do again. The
/// weight of a second of it, beyond what the least busy one did, for each unit of congestion,
/// against one of its queue. No request waits longer for it than it takes to be computed: a worker
/// whose turn it is not would have nothing to do meanwhile.
inline constexpr double trend_weight = 0.25;
/// Streams of other shards are counted as such ones.
inline constexpr std::uint32_t other_prompt_tokens = 1'024;
inline constexpr std::uint32_t other_answer_tokens = 256;
/// Scores this near to each other are a tie: the larger of both.
inline constexpr double tie_seconds = 0.001;
inline constexpr double tie_share = 0.06;
/// After a gap, what a worker still says before everything comes again is dropped; each so many
/// messages it is asked once more.
inline constexpr std::uint32_t resync_again_messages = 64;

/// A refusal's code: at each worker there is already a prompt under suspicion.
inline constexpr const char* quarantine_full = "quarantine_full";
// What another shard may see otherwise.

/// This one knows no worker that could.
inline constexpr const char* no_ready_worker = "no_ready_worker";
/// It holds as many leases as it may.
inline constexpr const char* router_overloaded = "router_overloaded";
/// To it all engines for the prompt, or for the answer, have been given up. Waiting is of no use
/// before somebody mends them.
inline constexpr const char* engines_given_up = "engines_given_up";

using time_point = std::chrono::steady_clock::time_point;

struct route_query {
  time_point now{};
  std::uint64_t draw = 0;  ///< random; 0: ties go to the nearest
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
  std::uint64_t shard_key = 0;
  /// A running stream leaves this worker, and looks for one that can take its KV; empty: none does.
  std::string move_from;
  /// Under suspicion of crashing engines: to workers that have no other such prompt.
  bool quarantine = false;
  std::string workload;  ///< whose workers are apart from others' (a tenant); empty: the model's
};

enum class plan : std::uint8_t { local, full, from_position, decode_prefills, move };

struct chosen_worker {
  std::string name;  ///< empty: none
  std::uint64_t generation = 0;
  std::string host;
  std::vector<std::uint8_t> transfer_address;
};

struct route_choice {
  plan how = plan::local;
  chosen_worker prefill;
  chosen_worker decode;
  std::uint64_t lease = 0;
  double score_seconds = 0;
  double granted_seconds = 0;  ///< of engines, by the lease
  std::string reason;          ///< scores of the best and of the next
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
  std::uint64_t busy_us = 0;
  std::uint64_t passes = 0;
  std::uint32_t preparing = 0;  ///< prompts on their way to the engine: at tokenisers, or before
};

/// What came of a route, from the request that had it.
struct route_outcome {
  std::uint32_t prompt_tokens = 0;  ///< 0: not known
  std::uint32_t cached_tokens = 0;  ///< of them, by the worker that prefilled
  std::uint64_t transfer_bytes = 0;
  std::uint64_t wire_us = 0;  ///< that they were under way; 0: not known
};

/// Chooses workers. The score of a route is the time until its first token, in seconds, and what it
/// costs others (POLICIES of sharded LLM routers; each part is a figure of its own in `reason`):
///
///   queue of prefill + prefill_seconds(prompt, cached there)
///   + what of it is computed in vain x weight of the others + work done lately x weight
///   + KV bytes that decode lacks / bandwidth of the way
///   + queue of decode + its pressure: work being decoded, slots and KV that lack
///
/// over all plans: local, full, from a position, decode alone. Costs are the engine's (calibrated,
/// or measured from its reports, or assumed). Cached prefixes are those of the block index, those
/// guessed of prompts on their way, times what templates leave of them. Workers that failed the
/// request or are slow come last, whatever their score. Of scores as good as equal two are drawn at
/// random, and the better one is taken, so that several shards do not follow each other. Pure.
///
/// A shard's view of a worker is what it has leased to it itself since the worker's last report,
/// and what the worker reports, other shards' work included. Leases end by release, with their
/// requester's host or hub, and with their worker's generation; nothing else resets them.
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
  /// A pool's calibrated costs; they go before what its engines' reports show.
  void set_costs(const std::string& pool, capacity::cost_model costs);

  std::variant<route_choice, route_refusal> decide(const route_query& q);
  void release(std::uint64_t lease);
  /// Its prompt is computed: a prefill worker has done its share, and of one that does both the
  /// answer is left.
  void release_prefill(std::uint64_t lease);
  /// The prompt has proved harmless; it goes on.
  void clear(std::uint64_t lease);
  /// What came of it, while the lease is open. Only the first is heard.
  void learn(std::uint64_t lease, const route_outcome& o);

  void report(const std::string& worker, std::uint64_t generation, const worker_report& r,
              time_point now = {});
  /// Numbered messages; false: there is a gap, ask for everything again. `more`: of what comes
  /// since a reset, this is not the last.
  [[nodiscard]] bool prefixes(const std::string& worker, std::uint64_t generation,
                              std::uint64_t sequence, bool reset,
                              const std::vector<std::uint64_t>& added,
                              const std::vector<std::uint64_t>& dropped, bool more = false);
  /// It has been asked for everything: what it says before that is void.
  void expect_all(const std::string& worker, std::uint64_t generation);
  /// Workers that jobs are given to, or that drain, and that have not told all that they hold.
  struct incomplete {
    std::string worker;
    std::uint64_t generation = 0;
    bool ready = false;
    std::uint64_t coming = 0;  ///< the next message of its answer that is under way; 0: none is
  };
  std::vector<incomplete> untold() const;
  /// How many these are, and of them those that are ready.
  std::size_t untold_count() const { return untold_; }
  std::size_t untold_ready() const { return untold_ready_; }

  /// Whether there is any worker that jobs are given to.
  bool any_ready() const;

  /// So many shards decide at the same time.
  void set_shards(std::uint32_t shards) { limits_.shards = shards; }

  struct worker_view {
    directory::entry entry;
    worker_report last;
    bool reported = false;
    std::uint64_t leased_tokens = 0;
    std::uint32_t leases = 0;
    std::size_t blocks = 0;
    double queue_seconds = 0;  ///< of prompts, at the time of its last report
    capacity::provenance costs = capacity::provenance::assumed;
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
  /// Of a model's promised cached tokens, the share that is found.
  double cached_share(const std::string& model) const;
  const block_index& index() const { return index_; }
  /// What other shards may get, or give.
  session_book& sessions() { return sessions_; }
  const session_book& sessions() const { return sessions_; }

 private:
  using worker_id = std::uint32_t;
  using host_id = std::uint32_t;
  static constexpr std::uint32_t nobody = ~0U;

  struct pool {
    std::vector<worker_id> members;
    std::array<worker_subsets, 3> ready;  ///< both, prefill, decode
    double bytes_per_token_sum = 0;
    std::uint32_t bytes_per_token_count = 0;
    cache_correction correction;
  };
  /// What each decision asks of each candidate comes first, in two lines of the processor's cache:
  /// with thousands of workers fetching it is what a decision's time goes into.
  struct alignas(64) worker {
    block_index::holder holder = 0;
    std::uint32_t life = 0;  ///< of all workers' lives this one's number, for guesses
    host_id host = nobody;
    std::uint32_t quarantined = 0;  ///< of the leases: 0 or 1, but for a worker out of sight
    bool present = false;
    bool slow = false;
    bool reported = false;
    float unseen = 1;  ///< the part of `lately` that nobody knows
    time_point reported_at{};
    double reported_rest = 0;    ///< seconds, by its last report, without `since_us[1]`
    double reported_others = 0;  ///< of that, what no lease of this shard explains
    // Prefill granted since the last report, and between that and the one before.
    std::uint64_t since_us[2] = {0, 0};
    std::uint64_t prefill_us = 0;  ///< of this shard's leases

    std::uint64_t decode_us = 0;  ///< the same
    std::uint64_t kv_tokens = 0;  ///< the same
    double prefill_seconds = 0;   ///< per token
    double prefill_growth = 0;    ///< per square of tokens
    float other_stream = 0;       ///< seconds of decoding that another shard's stream is taken for
    float lately = 0;             ///< seconds of work, see `work_meter`
    std::uint32_t leases = 0;
    std::uint32_t other_streams =
        0;  ///< at its last report, beyond those that this shard had leased
    std::uint32_t slots = 0;
    std::uint32_t kv_used = 0;
    std::uint32_t kv_total = 0;
    std::uint32_t kv_bytes_per_token = 0;

    directory::entry entry;
    pool* of = nullptr;
    worker_report last;
    speed_meter speeds;
    work_meter work;
    capacity::cost_model costs = capacity::cost_model::assumed();
    std::uint64_t next_event = 0;
    std::uint32_t unheeded = 0;  ///< messages since a gap, or since it was asked for everything
    bool telling = false;        ///< everything that it holds, part by part
    bool told = false;           ///< everything, and nothing was missed since
    bool lacks = false;          ///< counted in `untold_`
    bool lacks_ready = false;    ///< and in `untold_ready_`
    std::uint64_t leased_tokens = 0;
    std::uint32_t interval = 0;
    time_point interval_began{};

    /// Of `prefill_us`, what was granted before the report before the last one.
    std::uint64_t older_us() const { return prefill_us - since_us[1] - since_us[0]; }
    void set_entry(const directory::entry& e);
    void set_costs(capacity::cost_model c);
    /// By what it measured when it was loaded, where its entry says that.
    void set_loaded_costs();
    /// Seconds of the whole engine that an answer takes. What was measured when it was loaded is
    /// a stream alone, most of whose step would be the same for many: slots are taken to be as many
    /// as make it busy.
    double decode(std::uint32_t prompt, std::uint32_t answer) const;
    double prefill(std::uint32_t prompt, std::uint32_t cached) const {
      const double n = prompt, c = cached;
      return (n - c) * (prefill_seconds + prefill_growth * (n + c));
    }
  };
  /// A worker's share of a lease.
  struct share {
    worker_id who = nobody;
    std::uint64_t generation = 0;
    std::uint64_t tokens = 0;
    std::uint64_t prefill_us = 0;
    std::uint64_t decode_us = 0;
    std::uint64_t kv_tokens = 0;
    std::uint32_t interval = 0;

    double seconds() const { return static_cast<double>(prefill_us + decode_us) / 1e6; }
    void put_on(worker& w, bool quarantine);
    void take_from(worker& w, bool quarantine);
    /// Its prompt is computed.
    void prefilled(worker& w);
  };
  struct lease {
    std::string host;
    share prefill;
    share decode;
    std::uint64_t incarnation = 0;
    bool quarantine = false;
    std::uint32_t promised = 0;  ///< cached tokens by the chain, where exact events promised all
    pool* of = nullptr;
  };
  struct candidate {
    worker_id id = nobody;
    const worker* w = nullptr;
    std::uint32_t blocks = 0;    ///< cached, by exact events
    std::uint32_t promised = 0;  ///< tokens of them; 0 when guesses add to it
    std::uint32_t cached = 0;    ///< tokens, guesses included, corrected
    std::uint32_t rank = 0;      ///< smaller is better, before any score
    double queue = 0;            ///< seconds of prompts ahead
    double compute = 0;          ///< seconds for what is not cached
    double others = 0;           ///< seconds, what computing more than others need to costs them
    double trend = 0;            ///< seconds, for what it has had to do lately
    double pressure = 0;         ///< seconds, of decoding
    double weight = 0;           ///< of a second that is computed in vain
    double alone() const { return queue + compute + others + trend; }
  };
  struct option {
    plan how = plan::local;
    const candidate* prefill = nullptr;
    const candidate* decode = nullptr;
    std::uint32_t rank = 0;
    double score = 0;     ///< seconds, less the session's bonus
    double transfer = 0;  ///< seconds of it
    topology::distance far = topology::distance::same_host;
    bool last_pair = false;  ///< of the session
  };
  /// A question with what is the same for all candidates.
  struct question {
    const route_query& q;
    pool& of;
    std::uint32_t prompt = 0;  ///< tokens
    bool popular = false;      ///< what is cached of it is what many prompts begin with
    std::uint32_t answer = 0;  ///< tokens, of all choices
    double bytes_per_token = 0;
    host_id host = nobody;
    worker_id last_prefill = nobody, last_decode = nobody;  ///< of its session
  };

  // -- the fleet (router_policy.cpp)
  void enter(worker_id id, const directory::entry& e);
  void leave(worker_id id);
  void set_ready(worker& w, worker_id id);
  /// After a change of what its count as untold goes by.
  void count_untold(worker& w);
  void set_bytes_per_token(worker& w, float value);
  worker_id id_of(const std::string& name) const;
  host_id host_of(const std::string& name) const;
  /// Null when another incarnation has the name, or none.
  worker* incarnation(worker_id id, std::uint64_t generation);
  const std::string& name_of(worker_id id) const;
  topology::distance apart(host_id a, host_id b);

  // -- load (load.cpp)
  static void set_queue(worker& w, double reported);
  /// Of prompts ahead, as far as is known; none: the worker has said nothing lately.
  std::optional<double> known_queue(const worker& w, time_point now) const;
  static double pressure(const worker& w, const question& k);

  // -- deciding (decide.cpp)
  question understand(const route_query& q, pool& of) const;
  void find(const question& k, std::size_t role, std::vector<candidate>& found);
  void find_cached(const question& k);
  void weigh(const question& k, std::vector<candidate>& found, bool prefills_only) const;
  bool begins_popularly(const route_query& q);
  static double usual_work(const std::vector<candidate>& found);
  static double congestion(double usual_work);
  void weigh_others(const question& k);
  void consider(const question& k, option o);
  void pair_up(const question& k);
  double transfer_seconds(const question& k, const candidate& p, const candidate& d,
                          topology::distance far) const;
  std::size_t pick(const route_query& q, std::size_t& next) const;
  std::string explain(const option& best, const option* next) const;
  std::variant<route_choice, route_refusal> decide_move(const question& k);
  route_refusal refusal(const route_query& q) const;
  static chosen_worker chosen(const worker& w);

  // -- leases (leases.cpp)
  std::uint64_t grant(const question& k, share prefill, share decode, std::uint32_t promised);
  share share_of(const candidate& c, std::uint32_t prefill, std::uint32_t answer,
                 std::uint32_t kv_tokens, const question& k) const;
  /// What is leased to this incarnation.
  void put_back(worker& w);
  template <class Which>
  void release_all(Which&& which);
  /// Calls `f(worker, share)` for each side of a lease whose worker is still the incarnation that
  /// it was granted for.
  template <class F>
  void for_each_side(lease& l, F&& f);

  router_limits limits_;
  std::vector<std::string> models_;
  std::unordered_map<std::string, host_id> host_ids_;
  std::vector<topology::place> places_;
  std::vector<std::vector<topology::distance>> distances_;  ///< rows as they are needed
  std::unordered_map<std::string, worker_id> ids_;
  std::vector<worker> workers_;
  std::uint32_t lives_ = 0;
  std::size_t untold_ = 0, untold_ready_ = 0;  ///< of `untold()`: asked about with each message
  std::unordered_map<std::string, pool> pools_;
  std::unordered_map<std::string, capacity::cost_model> calibrated_;
  std::unordered_map<std::uint64_t, lease> leases_;
  std::unordered_map<std::string, std::uint64_t>
      incarnations_;  ///< of hubs, by host of the cluster
  session_book sessions_;
  std::uint64_t next_lease_;
  block_index index_;
  guess_book guesses_;
  prefix_rates popular_;
  link_speeds speeds_;

  // Of the decision at hand, kept for their memory.
  std::array<std::vector<candidate>, 3> found_;
  std::vector<block_index::holder> holders_;
  std::vector<std::uint32_t> blocks_;
  std::vector<std::uint32_t> by_prefill_;
  std::vector<option> options_;
  std::size_t best_ = 0, second_ = 0;  ///< among options
};

}  // namespace troupe::router
