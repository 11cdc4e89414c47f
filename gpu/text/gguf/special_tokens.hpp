#pragma once

#include <bitset>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe::gguf {

/// Special tokens in one part of a text. llama.cpp's time grows with their number squared.
inline constexpr std::size_t specials_per_part = 256;
/// Where tokens run into each other so that there is no place for a cut; above it the text is
/// refused.
inline constexpr std::size_t specials_per_part_max = 16'384;

/// Cuts texts into parts that can be tokenised one by one, with the same tokens as the whole: right
/// before a special token that llama.cpp is certain to find there. Constant after it was made; any
/// thread.
class special_tokens {
 public:
  struct special {
    std::string text;
    bool takes_space_before = false;  ///< whitespace in front of it belongs to it
  };

  explicit special_tokens(std::vector<special> all);
  special_tokens(const special_tokens&) = delete;
  special_tokens& operator=(const special_tokens&) = delete;

  /// The end of the part that begins at `from`. Nothing: it would have too many special tokens.
  std::optional<std::size_t> part_end(std::string_view text, std::size_t from) const;

 private:
  /// The longest that stands here; 0: none.
  std::size_t longest_at(std::string_view text, std::size_t at) const;
  bool is_certain(std::string_view text, std::size_t from, std::size_t at,
                  std::size_t length) const;

  std::vector<special> all_;
  std::unordered_map<std::string_view, const special*> by_text_;
  std::vector<std::size_t> lengths_;  ///< that occur, longest first
  std::bitset<256> first_bytes_;
};

}  // namespace troupe::gguf
