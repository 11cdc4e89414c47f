#pragma once

#include "apps/sim/fiber.hpp"
#include "apps/sim/kv_lane.hpp"
#include "apps/sim/network.hpp"

#include "actors/launcher/child_process.hpp"
#include "actors/workers/worker_actor.hpp"
#include "apps/engine/loading_status.hpp"
#include "apps/engine/node_link.hpp"
#include "config/cluster.hpp"
#include "gpu/engine/simulated/simulated_runner.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace troupe::sim {

/// What an engine does next, when a fault says so.
struct engine_mood {
  bool hang = false;    ///< the next forward pass never ends
  bool crash = false;   ///< the next forward pass ends the process
  double slowness = 1;  ///< how many times longer a pass takes
  bool never_loads = false;
  bool garbage = false;  ///< the logits of the next forward pass are no numbers
};

/// Time model of all engines.
struct engine_pace {
  double prefill_tokens_per_second = 40'000;
  double decode_step_us = 1'500;
  double decode_us_per_stream = 30;
  std::chrono::milliseconds load_min{200}, load_max{1'200};
};

class watched_board;

/// An engine's process: what apps/engine runs in one of its own, with the engine's thread as a
/// fiber, its loading as a wait, and KV through memory. Its actors are production's.
///
/// Kept after its end until the run is over, as what others might still read.
class engine_process {
 public:
  struct surroundings {
    schedule* when = nullptr;
    network* net = nullptr;
    kv_network* kv = nullptr;
    const config::cluster* cluster = nullptr;
    engine_pace pace;
    seeded* random = nullptr;
    process_id node = no_process;
    /// This one has ended, by itself or by a signal: whatever it is that must happen to its
    /// process.
    std::function<void(engine_process&, launcher::exit_status)> ended;
  };

  engine_process(surroundings world, launcher::child_process::options how);
  ~engine_process();
  engine_process(const engine_process&) = delete;
  engine_process& operator=(const engine_process&) = delete;

  const std::string& name() const { return self_.name; }
  std::uint64_t generation() const { return self_.generation; }
  process_id process() const { return process_; }
  const std::string& host() const { return self_.host; }
  bool alive() const { return world_.when->alive(process_); }
  bool serving() const { return host_ != nullptr; }
  msg::Role role() const { return self_.role; }
  engine_mood& mood() { return mood_; }

  void signal(int number);
  /// Ends it. Afterwards its launcher hears of it.
  void exit(launcher::exit_status how);

  // -- for the books; only while serving -----------------------------------------
  workers::engine_host* workers_host() { return host_.get(); }
  transfer::hand_over_service* hand_over() { return hand_over_.get(); }
  /// It could take a job and do it.
  bool able() const {
    return alive() && serving() && !hanging_ && !stopping_ && !world_.when->frozen(process_) &&
           !world_.when->frozen(world_.node);
  }
  /// It has jobs at hand: its board says so.
  bool at_work() const;
  /// It is in a forward pass that does not end.
  bool hangs() const { return hanging_; }
  /// When it was last not running, or not able to go on, for a reason that somebody may act upon.
  time_point last_excuse() const { return last_excuse_; }
  void excuse() { last_excuse_ = world_.when->now(); }
  /// Where the engine's books did not balance between two of its steps, of which some are looked
  /// at.
  const std::vector<std::string>& mismatches() const { return mismatches_; }
  /// Its launcher has killed it.
  std::function<void(engine_process&)> on_killed_by_launcher;

 private:
  void load(int steps_done);
  void serve();
  void run_engine();
  void audit();
  void resume_soon();
  void wake();
  void sleep(std::chrono::nanoseconds time);

  surroundings world_;
  launcher::child_process::options how_;
  const config::pool* pool_ = nullptr;
  process_id process_ = no_process;
  engine_mood mood_;
  directory::entry self_;
  std::string launcher_;
  std::shared_ptr<link::post_office> office_ = std::make_shared<link::post_office>();
  std::shared_ptr<apps::loading_status> loading_;
  std::unique_ptr<apps::node_link> link_;
  std::shared_ptr<transfer::hand_over_service> hand_over_;
  std::shared_ptr<watched_board> board_;
  std::shared_ptr<workers::engine_host> host_;
  caf::actor worker_;
  caf::actor watching_;
  std::unique_ptr<fiber> thread_;
  bool idle_ = true;
  bool woken_ = false;
  bool own_turn_ = false;   ///< what has run last was the thread itself
  time_point pass_time_{};  ///< as the engine's model of time sees it: without its slowness
  bool ended_ = false;
  bool stopping_ = false;
  bool hanging_ = false;
  time_point last_excuse_{};
  std::uint64_t steps_ = 0;
  std::vector<std::string> mismatches_;
};

/// What a launcher holds of it: its end ends the process, as with a real child.
class child final : public launcher::process {
 public:
  explicit child(engine_process& p) : process_(&p) {}
  ~child() override;
  pid_t pid() const override { return static_cast<pid_t>(process_->process()); }
  void signal(int number) override { process_->signal(number); }

 private:
  engine_process* process_;
};

}  // namespace troupe::sim
