#pragma once

#include "gpu/engine/engine.hpp"
#include "gpu/engine/sampler.hpp"
#include "gpu/kv/kv_pool.hpp"
#include "gpu/kv/prefix_cache.hpp"
#include "gpu/text/text_model.hpp"

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace troupe::engine {

using clock_time = std::chrono::steady_clock::time_point;

/// A place among the jobs that wait, given back by its destructor.
class queue_claim {
 public:
  /// Empty when `max` places are taken.
  static std::optional<queue_claim> take(std::atomic<std::size_t>& taken, std::size_t max) {
    if (taken.fetch_add(1) < max) return queue_claim(taken);
    --taken;
    return std::nullopt;
  }

 private:
  explicit queue_claim(std::atomic<std::size_t>& taken) : taken_(&taken) {}
  struct give_back {
    void operator()(std::atomic<std::size_t>* taken) const { --*taken; }
  };
  std::unique_ptr<std::atomic<std::size_t>, give_back> taken_;
};

enum class job_state : std::uint8_t { waiting, running, preempted, ended };

/// One choice of a generate job. It waits without KV (`kv` empty) until a slot is free, and again
/// when it was paused; what it has sampled stays.
struct choice_run {
  choice_run(std::uint16_t which, sampler with) : index(which), chooser(std::move(with)) {}

  std::uint16_t index;
  std::vector<token_id> ids;  ///< the answer so far, over all attempts
  std::optional<kv::sequence> kv;
  bool done = false;
  finish replayed_end = finish::none;  ///< the ids of earlier attempts already end the answer
  sampler chooser;
  std::unique_ptr<text::constraint> limits;
  std::unique_ptr<text::output_stream> out;
  std::uint32_t client_bytes =
      0;             ///< text that the client has from earlier attempts; never given out again
  std::string owed;  ///< text of replayed ids that the client doesn't have
  bool has_tool_calls = false;
};

/// Received KV that waits in ordinary memory: the prompt of a pre-empted job that may not be
/// computed here.
struct parked_kv {
  position begin = 0;
  position end = 0;
  std::vector<std::byte> bytes;
};

/// A prefill or generate job and all that it holds; whatever ends it, its destructor gives the KV
/// back. Engine thread, once submitted.
struct job {
  job_id id = 0;
  bool generate = false;
  /// Tokens that are known before this engine samples any: the prompt, and, of a stream that moved
  /// here with its KV, its answer until then.
  std::vector<token_id> prompt;
  std::size_t answer_in_prompt = 0;  ///< ids of the only choice that are also in `prompt`
  std::uint8_t priority = 0;
  bool probe = false;
  bool resumed = false;                 ///< a client has a part of its answer already
  std::uint32_t alone_passes_left = 0;  ///< passes in which it samples that must be its own
  std::vector<std::uint64_t> chain;
  kv::prefix_scope scope = 0;
  std::uint64_t age =
      0;  ///< smaller is older; kept when pre-empted, so that a job's rank only rises
  job_state state = job_state::waiting;
  std::optional<queue_claim> claim;  ///< until it is admitted
  std::optional<queue_claim> probe_claim;
  clock_time submitted;
  std::chrono::microseconds queued{0};
  std::chrono::microseconds computed{0};
  bool admitted_before = false;  ///< its start has been reported

  /// KV of the prompt but for its last token. Once it is complete (`prompt_in`), choices share it,
  /// and the last one to start takes it over.
  std::optional<kv::sequence> base;
  position base_missing =
      0;  ///< positions not computed or imported yet; cells for them are promised
  bool prompt_in = false;
  position cached = 0;  ///< prompt tokens that were found here

  // Prefill jobs.
  std::optional<position> deliver_from;  ///< empty: not granted yet
  position delivered = 0;                ///< positions before this are with decode

  // Generate jobs.
  std::vector<choice_run> choices;
  std::uint32_t max_tokens = 0;
  bool logprobs = false;
  std::uint8_t top_logprobs = 0;
  bool ignore_end = false;
  bool prefill_here = true;
  std::map<position, position> arrived;  ///< imported ranges
  std::vector<parked_kv> parking;
  std::uint32_t sampled = 0;  ///< by this engine
  std::optional<clock_time> decoding_since;

  job_cost cost;  ///< so far, until it is told

  std::uint64_t last_pass = 0;  ///< number of the last pass that computed something of it
  double turns_missed = 0;      ///< that were due to it since it last got on
  clock_time missing_since;     ///< the first of them

  /// Positions that the base needs: all but the last prompt token, which is always a decode step of
  /// its own.
  position base_size() const { return static_cast<position>(prompt.size()) - 1; }
  /// Whether the prompt's KV may not be computed here and isn't here yet.
  bool awaits_imports() const { return generate && !prefill_here && !prompt_in; }

  /// There is something to compute for it now.
  bool has_work() const {
    return state == job_state::running && !awaits_imports() && (generate || !prompt_in);
  }

  /// Cells that its sequences hold; shared ones count for each.
  std::uint32_t cells_held() const {
    std::uint32_t cells = base ? base->end() : 0;
    for (const auto& c : choices)
      if (c.kv) cells += c.kv->end();
    return cells;
  }

  bool finished() const {
    for (const auto& c : choices)
      if (!c.done) return false;
    return generate;
  }
  /// The token at a position of a choice's sequence.
  token_id known(const choice_run& c, position p) const {
    return p < prompt.size() ? prompt[p] : c.ids[answer_in_prompt + p - prompt.size()];
  }
  position known_size(const choice_run& c) const {
    return static_cast<position>(prompt.size() + c.ids.size() - answer_in_prompt);
  }

  /// Runs before the other: higher priority, then one whose client waits in the middle of an
  /// answer, then older.
  bool outranks(const job& other) const {
    if (probe != other.probe) return probe;
    if (priority != other.priority) return priority > other.priority;
    return resumed != other.resumed ? resumed : age < other.age;
  }
};

}  // namespace troupe::engine
