#pragma once

#include "apps/console/terminal.hpp"
#include "config/cluster.hpp"

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace troupe::apps::console {

/// Between the two looks at the books of `books --check`: longer than any message is on its way.
inline constexpr std::chrono::milliseconds check_pause{1'000};

/// What commands work with.
struct command_context {
  terminal& link;
  std::string host;                ///< the node at the other end
  std::vector<std::string> hosts;  ///< of the cluster
  std::vector<std::string> pools;
  /// Of the cluster file that this terminal has, as it is now; empty: it has problems.
  std::function<std::string()> digest = {};
  bool json = false;
  std::function<void(const std::string&)> out;
  std::function<void(const std::string&)> err;
  std::function<void(std::chrono::milliseconds)> pause;
};

struct command {
  const char* name;
  const char* arguments;
  const char* help;
  /// Of its words without its name; the exit code.
  int (*run)(command_context& c, const std::vector<std::string>& words);
};

const std::vector<command>& commands();

/// Runs one command line, in words. Exit codes: ok; failure (a check found something, a host did
/// not answer, the node refused); usage; address (the connection is lost).
int run_command(command_context& c, const std::vector<std::string>& words);

/// A line of an interactive console in words, by blanks.
std::vector<std::string> words_of(const std::string& line);

/// What may stand where a line ends now: names of commands first, then of hosts.
std::vector<std::string> completions(const std::string& line, const std::vector<std::string>& hosts,
                                     const std::vector<std::string>& pools);

/// Who an order is about: a host or a pool by its name, or an engine by its own
/// (`decode/llama/h2.0`); `host:` or `pool:` in front where a name is both.
struct order_target {
  msg::ConsoleOrder::TargetKind kind;
  std::string name;
};
/// Errors: `no_such_target`, `ambiguous_target`.
expected<order_target> target_of(const std::string& word, const std::vector<std::string>& hosts,
                                 const std::vector<std::string>& pools);

/// The words of an order: its target, and options.
struct order_words {
  order_target target{};
  std::chrono::milliseconds within{60'000};
  bool move_now = false;
  bool stop = false;
  bool all_at_once = false;
};
/// Of `drain`, `restart` or `undrain`. Errors: `usage`, and those of `target_of`.
expected<order_words> read_order(const std::string& command, const std::vector<std::string>& words,
                                 const std::vector<std::string>& hosts,
                                 const std::vector<std::string>& pools);

}  // namespace troupe::apps::console
