#pragma once

#include "actors/control/shard_map.hpp"
#include "actors/request/submission.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace troupe::request {

/// A shard that has left a question without an answer is asked again only after so long, as long as
/// there are others: one that hangs while its node is well would cost each request the wait.
inline constexpr std::chrono::milliseconds silent_shard_rest{5'000};

/// How a prompt finds its shard: the same for all its attempts.
struct shard_way {
  control::key64 key = 0;
  std::uint64_t draw = 0;  ///< among the shards of the key: one conversation stays at one
};
/// By the client's session, or else by the prompt; what is shorter than a block goes by its number.
/// Pure.
shard_way find_way(const submission& s, std::uint16_t prompt);

/// Of a prompt that must be alone: the same for all of a model, so that one shard knows at which
/// workers such prompts are. While that one is not ready, or does not know whom to give it to,
/// another may put two of them at one worker. Pure.
shard_way quarantine_way(const std::string& model);

/// The session's name at the shards: two tenants may call theirs alike.
std::string session_name(const submission& s);

/// Shards that have just left a question without an answer, and said nothing else since it was
/// asked. Thread-safe.
class silent_shards {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  /// A question of then was not answered until now. One that a cut or a node's start has swallowed
  /// says nothing of a shard that has answered younger ones.
  void note(const std::string& shard, time_point asked, time_point now);
  /// It has said something, or begun anew.
  void heard(const std::string& shard, time_point now);
  bool rests(const std::string& shard, time_point now) const;

 private:
  mutable std::mutex mutex_;
  struct word {
    time_point heard = time_point::min();
    time_point rests_until = time_point::min();
  };
  std::map<std::string, word> all_;  ///< of the shards of the cluster
};

/// The shard to ask and the assignment that says so; `tried` were asked in vain before.
struct chosen_shard {
  std::string name;
  std::uint64_t generation = 0;  ///< by the directory; 0: it doesn't know the shard
  control::assignment_number by;
};
chosen_shard choose_shard(const control::shard_map& map, const directory::snapshot& all,
                          const silent_shards& silent, const shard_way& way, std::uint32_t tried,
                          silent_shards::time_point now);
/// The next one that does not rest and is none of those that have refused; none: all have been
/// asked. Those that are ready come first, but a shard that begins may know workers, too, that one
/// whose links are younger still lacks.
std::optional<chosen_shard> other_shard(const control::shard_map& map,
                                        const directory::snapshot& all, const silent_shards& silent,
                                        const shard_way& way,
                                        const std::vector<std::string>& refused,
                                        silent_shards::time_point now);

}  // namespace troupe::request
