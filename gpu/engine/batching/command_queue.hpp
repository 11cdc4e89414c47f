#pragma once

#include "gpu/engine/batching/job.hpp"
#include "gpu/engine/engine.hpp"
#include "gpu/engine/runner.hpp"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

namespace troupe::engine {

struct submit_command {
  std::unique_ptr<job> what;
};
struct grant_command {
  job_id id;
  position from;
};
struct import_command {
  kv_piece piece;
};
struct leave_command {
  job_id id;
};
struct cancel_command {
  job_id id;
};
using command =
    std::variant<submit_command, grant_command, import_command, leave_command, cancel_command>;

/// The door between all threads and the engine thread: commands in order, the engine's sleep, and
/// the decision to interrupt a forward pass.
class command_queue {
 public:
  /// A pass is interrupted when cancelled jobs own at least this share of its tokens: the others'
  /// tokens are computed once more in the next pass, and nothing is lost.
  static constexpr double abort_share = 0.5;

  explicit command_queue(model_runner& runner) : runner_(runner) {}

  void push(command c);
  std::vector<command> take_all();
  void wait(std::chrono::milliseconds at_most);
  void wake();

  /// Between these two calls a cancel may abort the runner. `tokens`: of each job in the pass.
  void pass_begins(std::unordered_map<job_id, std::uint32_t> tokens);
  void pass_ended();

 private:
  void abort_if_worth_it();

  model_runner& runner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<command> commands_;
  bool woken_ = false;
  bool computing_ = false;
  std::unordered_map<job_id, std::uint32_t> pass_;
  std::unordered_set<job_id> cancelled_;  ///< by commands not taken yet
};

}  // namespace troupe::engine
