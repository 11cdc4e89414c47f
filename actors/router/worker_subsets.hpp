#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

namespace troupe::router {

/// Which workers of a large pool a workload may use: shuffle sharding. Each workload draws its own
/// workers, so that two of them rarely share all of theirs, and what one of them does to its
/// workers reaches few others. The drawing is stable: a worker that comes or goes changes the
/// choice of few. A workload whose workers are busy gets twice as many, and half of them back when
/// they have been idle for long. A decision looks at no more than `decision_workers_max` of them,
/// the same ones for the same conversation. Pure but for its memory of workloads; not thread-safe.
class worker_subsets {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr std::size_t decision_workers_max = 64;
  /// Twice the workers when even the best would let a prompt wait so long ...
  static constexpr double grow_wait_seconds = 0.5;
  /// ... but not again before the last growth had time to show.
  static constexpr std::chrono::milliseconds grow_interval{2'000};
  /// Half of them after so long without any wait.
  static constexpr std::chrono::milliseconds shrink_after{60'000};
  /// Workloads that are remembered; the longest quiet one is forgotten, and begins small again.
  static constexpr std::size_t workloads_max = 4'096;

  /// The pool's workers, any numbers that stay the same for the same worker.
  void set_pool(std::vector<std::uint32_t> workers);
  void add(std::uint32_t worker);
  void remove(std::uint32_t worker);
  std::size_t pool_size() const { return all_.size(); }

  /// For a decision; valid until the next call of anything here. All of them while the pool is no
  /// larger than a decision may look at.
  std::span<const std::uint32_t> of(std::uint64_t workload, std::uint64_t conversation);
  /// What the best of them would have let the prompt wait.
  void note_wait(std::uint64_t workload, double seconds, time_point now);
  /// How many workers the workload has.
  std::size_t size_of(std::uint64_t workload) const;

 private:
  struct share {
    std::uint64_t workload = 0;
    std::size_t groups = 1;  ///< of decision_workers_max
    std::uint64_t version = 0;
    std::vector<std::uint32_t> workers;
    time_point grown{};
    time_point last_wait{};
    bool waited = false;
  };
  using shares = std::list<share>;

  static std::uint64_t mix(std::uint64_t x);
  share& find(std::uint64_t workload);
  void draw(share& s);

  std::vector<std::uint32_t> all_;
  std::uint64_t version_ = 1;
  shares recent_;  ///< the latest first
  std::unordered_map<std::uint64_t, shares::iterator> by_workload_;
};

}  // namespace troupe::router
