#include "gpu/text/utf8.hpp"

namespace troupe::text {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

enum class shape { complete, incomplete, invalid };

struct scan {
  shape what;
  std::size_t length;  ///< of the character, or of the maximal ill-formed part, or of what there is
};

unsigned at(std::string_view s, std::size_t i) { return static_cast<unsigned char>(s[i]); }

/// Looks at the character that begins at s[0] (s is not empty), by table 3-7 of the Unicode
/// standard.
scan first_character(std::string_view s) {
  const unsigned lead = at(s, 0);
  if (lead < 0x80) return {shape::complete, 1};
  unsigned low = 0x80;
  unsigned high = 0xBF;
  std::size_t length = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;   // overlong
    if (lead == 0xED) high = 0x9F;  // surrogates
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;   // overlong
    if (lead == 0xF4) high = 0x8F;  // above U+10FFFF
  } else {
    return {shape::invalid, 1};
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (i == s.size()) return {shape::incomplete, i};
    if (at(s, i) < low || at(s, i) > high) return {shape::invalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {shape::complete, length};
}

}  // namespace

std::string utf8_assembler::push(std::string_view bytes) {
  std::string out;
  std::string joined;
  if (!pending_.empty()) {
    joined = std::move(pending_);
    joined.append(bytes);
    bytes = joined;
    pending_.clear();
  }
  while (!bytes.empty()) {
    const auto [what, length] = first_character(bytes);
    if (what == shape::incomplete) {
      pending_.assign(bytes);
      break;
    }
    out.append(what == shape::complete ? bytes.substr(0, length) : replacement);
    bytes.remove_prefix(length);
  }
  return out;
}

std::string utf8_assembler::finish() {
  const bool cut = !pending_.empty();
  pending_.clear();
  return cut ? std::string(replacement) : std::string();
}

std::string_view beginning(std::string_view text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  const auto continues = [&](std::size_t i) { return (at(text, i) & 0xC0U) == 0x80; };
  auto size = bytes_max;
  while (size > 0 && bytes_max - size < 3 && continues(size)) --size;
  return text.substr(0, size);
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto [what, length] = first_character(text);
    if (what != shape::complete) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace troupe::text
