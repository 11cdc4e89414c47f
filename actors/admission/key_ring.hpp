#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe::admission {

using key_hash = std::array<unsigned char, 32>;  ///< SHA-256

/// Of an API key, whatever its length.
key_hash hash_key(std::string_view key);
/// None for what is not 64 hexadecimal digits.
bool read_hash(std::string_view hex, key_hash& out);
std::string to_hex(const key_hash& hash);
/// A new API key: `tr-` and 256 random bits. Empty: the system has no randomness.
std::string make_key();

/// API keys longer than this are nobody's.
inline constexpr std::size_t key_bytes_max = 256;

/// Whom a key belongs to.
struct key_owner {
  std::string tenant;               ///< empty: an operator, who sends no requests
  std::vector<std::string> models;  ///< that it may use
  /// Seeds the chains of its prompts, and names the cached prefixes that it may use: of the cluster
  /// and, unless it shares them, its own.
  std::uint64_t chain_key = 0;
  std::uint64_t prefix_scope = 0;

  bool may_use(std::string_view model) const;
};

/// All API keys of a cluster, by hash. Keys have 256 random bits, so that a fast hash is enough. A
/// hash is looked for by a secret of this process and compared in constant time: nobody learns from
/// the time of an answer how much of a hash was right. Immutable; thread-safe.
class key_ring {
 public:
  struct entry {
    key_owner owner;
    std::vector<std::string> key_hashes;  ///< hexadecimal
  };
  explicit key_ring(const std::vector<entry>& all);

  /// Null: nobody's. The key is kept and logged nowhere.
  const key_owner* find(std::string_view key) const;
  std::size_t keys() const { return keys_.size(); }

 private:
  struct held_key {
    key_hash hash;
    std::size_t owner;
  };
  std::uint64_t place_of(const key_hash& hash) const;

  std::uint64_t secret_;
  std::vector<key_owner> owners_;
  std::unordered_multimap<std::uint64_t, held_key> keys_;
};

/// Seeds the chains of those who share their prefixes with all others that do: the same at every
/// gateway of a cluster, another in each cluster.
std::uint64_t cluster_chain_key(const std::string& cluster_id);

/// The chain key and prefix scope of a tenant that shares its prefixes with nobody. Made of names
/// that are no secret, so that all gateways have the same: they keep caches apart, and hide
/// nothing.
struct tenant_salt {
  std::uint64_t chain_key = 0;
  std::uint64_t prefix_scope = 0;  ///< never 0
};
tenant_salt salt_of(const std::string& cluster_id, const std::string& tenant);

}  // namespace troupe::admission
