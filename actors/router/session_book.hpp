#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

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
  /// A choice without prefill says nothing about it: the last known one stays.
  void note(const std::string& model, std::string_view session, pair used);
  std::size_t size() const { return recent_.size(); }

 private:
  using key = std::uint64_t;
  static key key_of(const std::string& model, std::string_view session);

  std::size_t sessions_max_;
  std::list<std::pair<key, pair>> recent_;  ///< the latest first
  std::unordered_map<key, std::list<std::pair<key, pair>>::iterator> by_key_;
};

}  // namespace troupe::router
