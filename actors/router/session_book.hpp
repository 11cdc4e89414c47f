#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe::router {

/// Which pair of workers served a client's session last. Holds up to `sessions_max`; the one that
/// was quiet for longest is forgotten for a new one. Sessions are known by a hash of their name:
/// two with the same would only share a preference. Pure.
class session_book {
 public:
  struct pair {
    std::string prefill;  ///< empty: decode did all
    std::string decode;
  };

  explicit session_book(std::size_t sessions_max) : sessions_max_(sessions_max) {}

  /// Null: it is not known (any more). Valid until the next `note`.
  const pair* find(const std::string& model, std::string_view session) const;
  /// A choice without prefill says nothing about it: the last known one stays. `shard_key`: of the
  /// session, in the key space of shards.
  void note(const std::string& model, std::string_view session, pair used,
            std::uint64_t shard_key = 0);
  std::size_t size() const { return recent_.size(); }

  /// A session as it travels to another shard.
  using key = std::uint64_t;  ///< hash of model and name
  struct moving {
    key session = 0;
    std::uint64_t shard_key = 0;
    pair used;
  };
  /// Those whose shard keys `leaves` says true of, the latest first; they are forgotten.
  template <class Leaves>
  std::vector<moving> take(Leaves&& leaves) {
    std::vector<moving> all;
    for (auto i = recent_.begin(); i != recent_.end();) {
      if (!leaves(i->shard_key)) {
        ++i;
        continue;
      }
      by_key_.erase(i->session);
      all.push_back(std::move(*i));
      i = recent_.erase(i);
    }
    return all;
  }
  /// From another shard, the latest first: behind all that is known here, and dropped where that is
  /// as much as may be.
  void add(moving m);

 private:
  static key key_of(const std::string& model, std::string_view session);

  std::size_t sessions_max_;
  std::list<moving> recent_;  ///< the latest first
  std::unordered_map<key, std::list<moving>::iterator> by_key_;
};

}  // namespace troupe::router
