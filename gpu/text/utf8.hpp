#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::text {

/// Turns a stream of bytes into whole UTF-8 characters: a character that is cut by a token's end
/// waits for its rest. Bytes that can't be UTF-8 become U+FFFD, one for each maximal ill-formed
/// part (as Unicode recommends and browsers do), so the result is always valid. How the bytes were
/// cut never changes the result. A value type; thread-compatible.
class utf8_assembler {
 public:
  /// The characters that these bytes complete.
  std::string push(std::string_view bytes);
  /// The end: an incomplete character becomes one U+FFFD.
  std::string finish();
  /// Bytes that wait, at most 3.
  std::size_t pending() const { return pending_.size(); }

 private:
  std::string pending_;
};

/// As many bytes from the beginning as fit, without a part of a character at the end of what was
/// cut.
std::string_view beginning(std::string_view text, std::size_t bytes_max);

/// Whether the text is valid UTF-8 (no surrogates, no overlong forms, nothing above U+10FFFF).
bool is_valid_utf8(std::string_view text);

}  // namespace troupe::text
