#pragma once

#include "messages/base/expected.hpp"
#include "messages/control.capnp.h"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace troupe::control {

/// A place in the key space of requests: 64 bits, hashed (`shard_key.hpp`).
using key64 = std::uint64_t;

/// Shards of a cluster, slices of an assignment, replicas of a slice: an assignment must fit into a
/// message.
inline constexpr std::size_t shards_max = 64;
inline constexpr std::size_t slices_max = 8'192;
inline constexpr std::size_t replicas_max = 16;
/// Slices for each shard where nobody knows the load yet, as Dicer's minimum.
inline constexpr std::size_t uniform_slices_per_shard = 32;

/// Terms of others that are heeded; above it is nonsense, after which there could be no higher one.
inline constexpr std::uint64_t term_max = std::uint64_t{1} << 62U;

/// Which assignment is newer: the term of the control host that made it, then its count.
struct assignment_number {
  std::uint64_t term = 0;
  std::uint64_t generation = 0;
  friend auto operator<=>(const assignment_number&, const assignment_number&) = default;
};

/// The keys from `first` up to the next slice's, and the shards that have them.
struct slice {
  key64 first = 0;
  std::vector<std::uint16_t> replicas;  ///< indices of shards; ascending, at least one
  friend bool operator==(const slice&, const slice&) = default;
};

/// Who of the router shards has which keys. Each key has a slice, each slice at least one shard.
/// Immutable, a value.
class assignment {
 public:
  /// Errors: `bad_assignment`, with what is wrong.
  static expected<assignment> make(assignment_number number, std::vector<std::string> shards,
                                   std::vector<slice> slices);
  /// The same slices for each shard, dealt out in turn; number {0, 0}: any other is newer. What
  /// everybody starts from without being told. `shards` is not empty.
  static assignment uniform(std::vector<std::string> shards);

  const assignment_number& number() const { return number_; }
  const std::vector<std::string>& shards() const { return shards_; }
  const std::vector<slice>& slices() const { return slices_; }

  /// Index of the slice that has the key.
  std::size_t slice_of(key64 key) const;
  std::span<const std::uint16_t> replicas_of(key64 key) const {
    return slices_[slice_of(key)].replicas;
  }
  /// Of several replicas, `draw` chooses: the same for everything that is to come to the same one.
  const std::string& shard_of(key64 key, std::uint64_t draw = 0) const;
  bool has(const std::string& shard, key64 key) const;

  /// The last key of a slice.
  key64 last_of(std::size_t slice_index) const {
    return slice_index + 1 < slices_.size() ? slices_[slice_index + 1].first - 1 : ~key64{0};
  }

 private:
  assignment(assignment_number number, std::vector<std::string> shards, std::vector<slice> slices);

  assignment_number number_;
  std::vector<std::string> shards_;
  std::vector<slice> slices_;
  std::vector<key64> firsts_;  ///< of the slices, close together: a search reads little memory
};

/// The part of the key space that is from `first` to `last`: above 0, at most 1.
double width(key64 first, key64 last);

void write(msg::Assignment::Builder out, const assignment& a);
/// Errors: as `assignment::make`; nothing on the wire is trusted.
expected<assignment> read(msg::Assignment::Reader in);

}  // namespace troupe::control
