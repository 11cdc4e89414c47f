#pragma once

#include "actors/capacity/cost_model.hpp"
#include "gpu/engine/job_cost.hpp"
#include "messages/job_key.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace troupe::request {

using msg::job_key;

/// What one job of a request has cost its worker.
struct job_account {
  std::string worker;
  std::uint64_t generation = 0;  ///< of the worker
  std::uint16_t prompt = 0;
  std::uint32_t attempt = 0;
  engine::job_cost cost;
  bool told = false;  ///< by the worker; else `cost` is a guess by what came of it
  bool lost = false;  ///< its worker is gone, and will not tell

  friend bool operator==(const job_account&, const job_account&) = default;
};

/// The jobs of one request over all its attempts, with what they cost. A worker tells a job's total
/// with its end; until then, and where it never does (it was lost, or is of a build that tells
/// nothing), a guess stands in. A value type; pure.
class work_log {
 public:
  /// More jobs of one prompt are not kept apart: the oldest that need not be told of any more are
  /// summed up.
  static constexpr std::size_t jobs_per_prompt_max = 64;

  void opened(const std::string& worker, std::uint64_t generation, const job_key& key);
  /// The job's total; a later word takes the place of an earlier one.
  void told(const std::string& worker, const job_key& key, const engine::job_cost& cost);
  /// Has no effect on what was told.
  void guess(const std::string& worker, const job_key& key, const engine::job_cost& cost);
  /// The same job goes on under another attempt's name.
  void renamed(const std::string& worker, const job_key& from, const job_key& to);
  /// A worker's processes are gone, but for that of the incarnation `alive` (0: none), with all
  /// jobs there.
  void lost(const std::string& worker, std::uint64_t alive);

  const std::vector<job_account>& jobs() const { return jobs_; }
  /// Jobs whose workers may still tell.
  std::size_t owed() const;
  /// All costs were told.
  bool complete() const;

 private:
  job_account* find(const std::string& worker, const job_key& key);
  void sum_up(std::uint16_t prompt);

  std::vector<job_account> jobs_;
};

/// One choice in an attempt.
struct choice_work {
  std::uint32_t before = 0;  ///< tokens of the answer that earlier attempts had given
  std::uint32_t came = 0;    ///< in this one
};

/// What a job that nobody has told of must have cost at least, in tokens, where its choices got so
/// far behind a prompt of which the first `cached` tokens were not computed. `prefilled`: the job
/// has computed the rest, with what the answers had `before`.
engine::job_cost guessed_cost(std::uint32_t prompt, std::uint32_t cached,
                              std::span<const choice_work> choices, bool prefilled);
/// The same of one choice, where `context` is the prompt with the answer so far.
engine::job_cost guessed_cost(std::uint32_t context, std::uint32_t cached, std::uint32_t came,
                              bool prefilled);

/// A job's cost as the capacity's ledgers take it. The computed range of the prompt follows from
/// the cost itself; `prompt_tokens` (0: not known) and `cached_tokens`, the client's and what of it
/// was cached at first, stand in where the cost is that of several ranges.
capacity::attempt_work work_of(const job_account& job, std::uint32_t prompt_tokens,
                               std::uint32_t cached_tokens);

}  // namespace troupe::request
