#pragma once

#include "actors/directory/directory_state.hpp"
#include "messages/drain.capnp.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::drain {

/// What an order is about.
struct target {
  enum class kind : std::uint8_t { engine, pool, host };
  kind what = kind::engine;
  std::string name;
};

/// Names of the engines that a target means, of those that the directory knows: by pool and host.
std::vector<std::string> engines_of(const directory::snapshot& all, const target& t);

/// `launcher/<pool>/<host>.<index>` of an engine's name.
std::string launcher_of(const std::string& engine);

/// How far an order is at one engine.
struct engine_progress {
  std::string engine;
  bool ordered = false;   ///< its launcher was told
  bool answered = false;  ///< and said so
  bool over = false;
  msg::DrainPhase phase = msg::DrainPhase::DRAINING;  ///< as its launcher last said
  std::uint32_t jobs_left = 0;
  std::string failure;  ///< why it was refused, or given up; empty: none
};

struct run_limits {
  std::uint32_t at_once = 0;  ///< engines at a time; 0: all
  /// For a launcher's first answer.
  std::chrono::milliseconds answer_max{5'000};
  /// From the order to its end at one engine.
  std::chrono::milliseconds whole_max{0};
};

/// One order on its way through its engines, so many at a time. An engine that fails holds up
/// nobody: the others follow, except with `at_once`, where the rest is given up; a rolling restart
/// that breaks its engines must not go on. Pure.
class drain_run {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  drain_run(std::vector<std::string> engines, run_limits limits);

  /// Whom to tell now; each engine once.
  std::vector<std::string> next(time_point now);
  void heard(const std::string& engine, const engine_progress& news);
  /// It left the directory, with its host.
  void lost(const std::string& engine);
  /// Gives up launchers that don't answer or don't come to an end. True: something has changed.
  bool tick(time_point now);

  bool over() const;
  const std::vector<engine_progress>& engines() const { return engines_; }

 private:
  engine_progress* find(const std::string& engine);
  void fail(engine_progress& e, std::string why);

  run_limits limits_;
  std::vector<engine_progress> engines_;
  std::vector<time_point> ordered_at_;  ///< by the same index
};

}  // namespace troupe::drain
