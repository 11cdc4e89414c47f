#pragma once

#include "actors/admission/capacity_window.hpp"
#include "actors/directory/directory_state.hpp"
#include "actors/request/cost_book.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

namespace troupe::request {

/// Until a model's prompts have been measured, and what a measurement may be.
inline constexpr double bytes_per_token_assumed = 4;
inline constexpr double bytes_per_token_min = 0.1;
inline constexpr double bytes_per_token_max = 1'000;
/// A worker that prefills is given what it computes in so long on top of what it computes now, or
/// so many steps' tokens, if that is more. With less, prompts that end within a step leave a part
/// of it empty, and workers have nothing to compute until the next prompt comes: two steps and a
/// half would do (97 % of capacity at 5x overload) if each went to the worker that needs it most,
/// but one shard doesn't know what another has just sent. With more, they wait for each other
/// there.
inline constexpr double prefill_ahead_s = 0.05;
inline constexpr double prefill_ahead_steps = 4;

/// A report older than this says little of now: reports come each second.
inline constexpr std::chrono::milliseconds supply_stale_after{5'000};

/// What a model's engines can take, by the directory and their reports: what admission goes by.
/// Pure.
class supply_book {
 public:
  /// `step_tokens`: of a pool's engines, by the pool's name.
  explicit supply_book(std::map<std::string, std::uint32_t> step_tokens)
      : step_tokens_(std::move(step_tokens)) {}

  using time_point = std::chrono::steady_clock::time_point;
  struct report {
    std::uint64_t generation = 0;
    std::uint32_t running = 0;  ///< answers that are sampled at once, as admission counts places
    std::uint32_t queued = 0;   ///< at the engine, or on their way to it
    double bytes_per_token = 0;
    time_point heard{};
  };
  void note(const std::string& worker, const report& r);

  struct of_model {
    troupe::admission::capacity_window::supply window;  ///< but for `gateways`
    double mu_per_second = 0;
  };
  /// By model; one that no engine is there for is not among them.
  std::map<std::string, of_model> supply(const directory::snapshot& all, cost_book& costs,
                                         time_point now) const;
  double bytes_per_token(const std::string& model) const;
  /// Workers' models, for the reports. Of all entries that change.
  void update(const directory::change& c);

 private:
  /// A worker's bytes per token, in the mean of its model's: 1 puts it in, -1 takes it out.
  void count(const std::string& worker, int by);
  /// Places in use at a worker, as it said last; none: it has never said anything.
  const report* last_of(const directory::entry& e) const;

  std::map<std::string, std::uint32_t> step_tokens_;
  std::map<std::string, report> reports_;      ///< by worker
  std::map<std::string, std::string> models_;  ///< by worker
  struct bytes {
    double sum = 0;
    int workers = 0;
  };
  std::map<std::string, bytes> bytes_;  ///< per token, by model
};

}  // namespace troupe::request
