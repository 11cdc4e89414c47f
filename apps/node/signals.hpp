#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

namespace troupe::apps {

/// SIGTERM and SIGINT as something to wait for, and a way to wake the waiter from any thread. At a
/// terminal SIGHUP counts, too: it is gone. Elsewhere, below nohup say, SIGHUP means nothing.
///
/// Made before any other thread is, so that all threads inherit the blocked signals.
class stop_signals {
 public:
  /// At a terminal: where standard input is one.
  stop_signals();
  explicit stop_signals(bool at_terminal);
  ~stop_signals();
  stop_signals(const stop_signals&) = delete;
  stop_signals& operator=(const stop_signals&) = delete;

  enum class cause : std::uint8_t { signal, woken, timeout };
  /// Waits for the next signal, a `wake`, or the end of `limit` (for ever without one).
  cause wait(std::optional<std::chrono::milliseconds> limit = std::nullopt);
  /// Any thread.
  void wake();

 private:
  int signals_ = -1;
  int wake_ = -1;
};

}  // namespace troupe::apps
