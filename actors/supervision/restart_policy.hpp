#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <vector>

namespace troupe::supervision {

/// Who is restarted when one child ends (as in OTP's supervisor).
enum class strategy : std::uint8_t {
  one_for_one,   ///< only that child
  one_for_all,   ///< all children
  rest_for_one,  ///< that child and those started after it
};

/// When a child is restarted.
enum class restart_kind : std::uint8_t {
  permanent,  ///< always
  transient,  ///< unless it ended well
  temporary,  ///< never
};

/// How a child ended.
enum class ending : std::uint8_t {
  clean,    ///< normal exit or an ordered stop
  failed,   ///< error, exception, crash
  excused,  ///< a failure, most likely by what others gave it to do
  fatal,    ///< trying again cannot help (missing model, bad configuration)
};

struct restart_limits {
  /// More than so many restarts within `period` exceed the policy; those after excused ends don't
  /// count. 0: nothing is ever restarted.
  std::uint32_t intensity = 5;
  std::chrono::milliseconds period{60'000};
  std::chrono::milliseconds backoff_min{200};
  std::chrono::milliseconds backoff_max{10'000};
};

/// What is to be done about an ended child.
struct decision {
  enum class kind : std::uint8_t { restart, ignore, escalate } what = kind::ignore;
  /// Children (by index, in start order) to stop in reverse order, then to start in order; empty
  /// unless `restart`. The ended child is among them.
  std::vector<std::size_t> children;
  std::chrono::milliseconds delay{0};
};

/// Decides what happens when a child ends: a sliding window over restarts, strategies, and
/// exponential back-off with jitter. Pure: time and randomness are passed in.
///
/// The delay doubles with each restart in the window, whatever it was for, from `backoff_min` to
/// `backoff_max`, and is spread over [1/2, 1] of that, so that many children that failed for one
/// reason don't come back at once.
class restart_policy {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  restart_policy(strategy s, restart_limits limits, std::vector<restart_kind> children,
                 std::uint64_t seed);

  decision decide(std::size_t child, ending how, time_point now);
  /// Restarts in the window that ends now.
  std::uint32_t recent(time_point now) const;

 private:
  struct restart {
    time_point at;
    bool counts = true;
  };
  bool exceeded() const;

  strategy strategy_;
  restart_limits limits_;
  std::vector<restart_kind> children_;
  std::deque<restart> restarts_;
  std::mt19937_64 random_;
};

}  // namespace troupe::supervision
