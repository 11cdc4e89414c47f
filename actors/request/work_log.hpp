#pragma once

#include "actors/capacity/cost_model.hpp"
#include "gpu/engine/job_cost.hpp"
#include "messages/job_key.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::request {

using msg::job_key;

/// What one job of a request has cost its worker.
struct job_account {
  std::string worker;
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
  /// More jobs of one request are not kept apart: the oldest are summed up.
  static constexpr std::size_t jobs_max = 64;

  void opened(const std::string& worker, const job_key& key);
  /// The job's total; a later word takes the place of an earlier one.
  void told(const std::string& worker, const job_key& key, const engine::job_cost& cost);
  /// Has no effect on what was told.
  void guess(const std::string& worker, const job_key& key, const engine::job_cost& cost);
  /// The same job goes on under another attempt's name.
  void renamed(const std::string& worker, const job_key& from, const job_key& to);
  /// A worker's process is gone, with all jobs there so far.
  void lost(const std::string& worker);

  const std::vector<job_account>& jobs() const { return jobs_; }
  /// Jobs whose workers may still tell.
  std::size_t owed() const;
  /// All costs were told.
  bool complete() const;

 private:
  job_account* find(const std::string& worker, const job_key& key);

  std::vector<job_account> jobs_;
};

/// What a job that nobody has told of must have cost at least, in tokens: `came` tokens of an
/// answer that went on behind a context of `context` ones, of which [cached, context) were computed
/// where `prefilled`.
engine::job_cost guessed_cost(std::uint32_t context, std::uint32_t cached, std::uint32_t came,
                              bool prefilled);

/// A job's cost as the capacity's ledgers take it. `prompt_tokens` and `cached_tokens` are the
/// client's and what of it was cached at first: where more was computed than lies between the two,
/// it was computed again.
capacity::attempt_work work_of(const job_account& job, std::uint32_t prompt_tokens,
                               std::uint32_t cached_tokens);

}  // namespace troupe::request
