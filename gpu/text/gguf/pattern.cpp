#include "gpu/text/gguf/pattern.hpp"

#include "gpu/text/gguf/code_points.hpp"
#include "gpu/text/utf8.hpp"

#include <fmt/format.h>

#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace troupe::gguf {
namespace {

/// Thrown inside of this file only.
struct unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// -- classes ----------------------------------------------------------------------------

const code_points& digits() {
  static const code_points set{{'0', '9'}};
  return set;
}
const code_points& word() {
  static const code_points set{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  return set;
}
const code_points& space() {  // ECMA-262: white space and line terminators
  static const code_points set{
      {'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
      {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
  return set;
}
const code_points& line_ends() {
  static const code_points set{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
  return set;
}
/// What stands for itself in a JSON string. Surrogates are none: no text has them alone.
const code_points& plain() {
  static const code_points set{{' ', '!'}, {'#', '['}, {']', 0xD7FF}, {0xE000, last_code_point}};
  return set;
}

// -- writing: what llama.cpp reads ------------------------------------------------------------

std::string class_member(char32_t c) {
  if (c <= 0xFF) return fmt::format("\\x{:02X}", static_cast<std::uint32_t>(c));
  if (c <= 0xFFFF) return fmt::format("\\u{:04X}", static_cast<std::uint32_t>(c));
  return fmt::format("\\U{:08X}", static_cast<std::uint32_t>(c));
}

std::string bracketed(const code_points& set) {
  std::string out = "[";
  for (const auto& [first, last] : set.ranges()) {
    out += class_member(first);
    if (last != first) out += "-" + class_member(last);
  }
  return out + "]";
}

/// The letter behind the backslash of a short escape in JSON; 0: there is none.
char short_escape(char32_t c) {
  switch (c) {
  case '"':
  case '\\':
    return static_cast<char>(c);
  case '\b':
    return 'b';
  case '\f':
    return 'f';
  case '\n':
    return 'n';
  case '\r':
    return 'r';
  case '\t':
    return 't';
  default:
    return 0;
  }
}

/// One code point of a set, as JSON writes it: as itself, or escaped.
std::string written(const code_points& set) {
  std::vector<std::string> ways;
  if (const auto bare = set.among(plain()); !bare.empty()) ways.push_back(bracketed(bare));
  code_points letters;
  bool all_controls = true;
  std::vector<std::string> controls;
  for (char32_t c = 0; c < 0x80; ++c) {
    const char letter = short_escape(c);
    if (!set.contains(c)) {
      all_controls = all_controls && c >= ' ';
    } else if (letter != 0) {
      letters.add(static_cast<char32_t>(letter), static_cast<char32_t>(letter));
    } else if (c < ' ') {
      controls.push_back(fmt::format("\\\\u{:04x}", static_cast<std::uint32_t>(c)));
    }
  }
  if (!letters.empty()) ways.push_back("\\\\" + bracketed(letters));
  if (all_controls)
    ways.emplace_back("\\\\u00[01][0-9a-f]");
  else
    ways.insert(ways.end(), controls.begin(), controls.end());
  if (ways.empty()) throw unsupported("a class that nothing is in");
  if (ways.size() == 1 && ways[0][0] == '[') return ways[0];
  std::string out = "(";
  for (const auto& way : ways) out += (out.size() > 1 ? "|" : "") + way;
  return out + ")";
}

const std::string& anything() {
  static const std::string text = "(" + written(code_points{}.complement()) + ")*";
  return text;
}

// -- reading: ECMA-262 --------------------------------------------------------------------------

class translator {
 public:
  explicit translator(std::string_view pattern) : left_(pattern) {}

  /// Each alternative has its own anchors.
  std::string whole() {
    std::string out = "^(";
    while (true) {
      const bool from_start = take("^");
      const auto body = sequence(0);
      out += (from_start ? "" : anything()) + body + (take("$") ? "" : anything());
      if (!take("|")) break;
      out += '|';
    }
    if (!left_.empty())
      throw unsupported(left_[0] == ')' ? "`)` without a group" : "an anchor inside");
    return out + ")$";
  }

 private:
  bool take(std::string_view what) {
    if (!left_.starts_with(what)) return false;
    left_.remove_prefix(what.size());
    return true;
  }
  bool at_anchor_at_end() const {
    return left_ == "$" || left_.starts_with("$|") || left_.starts_with("$)");
  }

  std::string alternatives(int depth) {
    auto out = sequence(depth);
    while (take("|")) out += "|" + sequence(depth);
    return out;
  }

  /// Up to `|`, `)`, the end, or an anchor.
  std::string sequence(int depth) {
    std::string out;
    while (!left_.empty() && left_[0] != '|' && left_[0] != ')') {
      if (left_[0] == '^' || left_[0] == '$') {
        if (depth > 0 || !at_anchor_at_end()) throw unsupported("an anchor inside");
        return out;
      }
      const auto one = item(depth);
      const auto times = repetition();
      // In a group, whatever it is: llama.cpp repeats all of a run of literals.
      out += times.empty() ? one : fmt::format("({}){}", one, times);
    }
    return out;
  }

  std::string item(int depth) {
    if (take("(")) return group(depth);
    if (take("[")) return written(bracket());
    if (take(".")) return written(line_ends().complement());
    for (const char c : {'*', '+', '?'})
      if (left_[0] == c) throw unsupported("a repetition of nothing");
    if (left_[0] == '{' || left_[0] == '}' || left_[0] == ']')
      throw unsupported(fmt::format("a bare `{}`, to be written as `\\{}`", left_[0], left_[0]));
    return written(character(false));
  }

  std::string group(int depth) {
    if (depth >= pattern_depth_max)
      throw unsupported(fmt::format("groups nested deeper than {} levels", pattern_depth_max));
    if (left_.starts_with('?')) {
      for (const char* around : {"?=", "?!", "?<=", "?<!"})
        if (left_.starts_with(around))
          throw unsupported(fmt::format("`({}...)`, which looks around", around));
      if (take("?<")) {  // its name is for references, and those are refused
        while (!left_.empty() && left_[0] != '>') left_.remove_prefix(1);
        if (!take(">")) throw unsupported("a group's name without an end");
      } else if (!take("?:")) {
        throw unsupported(fmt::format("`({}`", text::beginning(left_, 2)));
      }
    }
    auto out = "(" + alternatives(depth + 1) + ")";
    if (!take(")")) throw unsupported("`(` without an end");
    return out;
  }

  /// As llama.cpp writes it; empty: once.
  std::string repetition() {
    std::string out;
    if (take("*")) {
      out = "*";
    } else if (take("+")) {
      out = "+";
    } else if (take("?")) {
      out = "?";
    } else if (take("{")) {
      const auto low = count();
      std::optional<int> high = low;
      if (take(",")) high = left_.starts_with('}') ? std::nullopt : std::optional{count()};
      if (!take("}")) throw unsupported("`{` that begins no repetition");
      if (high && *high < low) throw unsupported(fmt::format("`{{{},{}}}`", low, *high));
      out = high ? fmt::format("{{{},{}}}", low, *high) : fmt::format("{{{},}}", low);
    } else {
      return out;
    }
    take("?");  // lazy: the same strings
    return out;
  }

  int count() {
    int n = 0;
    if (left_.empty() || left_[0] < '0' || left_[0] > '9')
      throw unsupported("`{` that begins no repetition");
    while (!left_.empty() && left_[0] >= '0' && left_[0] <= '9') {
      n = n * 10 + (left_[0] - '0');
      if (n > pattern_repetitions_max)
        throw unsupported(fmt::format("more than {} repetitions", pattern_repetitions_max));
      left_.remove_prefix(1);
    }
    return n;
  }

  code_points bracket() {
    const bool without = take("^");
    code_points set;
    while (!take("]")) {
      if (left_.empty()) throw unsupported("`[` without an end");
      const auto from = character(true);
      if (!left_.starts_with('-') || left_.starts_with("-]")) {
        set.add(from);
        continue;
      }
      take("-");
      if (left_.empty()) throw unsupported("`[` without an end");
      const auto to = character(true);
      if (!from.single() || !to.single()) throw unsupported("a range between classes");
      if (to.ranges()[0].first < from.ranges()[0].first) throw unsupported("a range backwards");
      set.add(from.ranges()[0].first, to.ranges()[0].first);
    }
    return without ? set.complement() : set;
  }

  static code_points one(char32_t c) { return {{c, c}}; }

  /// A character, or a class that is written like one.
  code_points character(bool in_bracket) {
    if (take("\\")) return escape(in_bracket);
    return one(next());
  }

  code_points escape(bool in_bracket) {
    if (left_.empty()) throw unsupported("`\\` at the end");
    const char c = left_[0];
    const auto refuse = [&](const char* what) {
      return unsupported(fmt::format("`\\{}`{}", c, what));
    };
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!letter) return one(next());
    left_.remove_prefix(1);
    switch (c) {
    case 'd':
      return digits();
    case 'D':
      return digits().complement();
    case 'w':
      return word();
    case 'W':
      return word().complement();
    case 's':
      return space();
    case 'S':
      return space().complement();
    case 't':
      return one('\t');
    case 'n':
      return one('\n');
    case 'r':
      return one('\r');
    case 'v':
      return one('\v');
    case 'f':
      return one('\f');
    case 'b':
      if (in_bracket) return one('\b');
      throw refuse(", which looks around");
    case 'B':
      throw refuse(", which looks around");
    case '0':
      if (!left_.empty() && left_[0] >= '0' && left_[0] <= '9') throw refuse(" with digits behind");
      return one(0);
    case 'x':
      return one(hex(2));
    case 'u':
      return one(unicode());
    case 'c':
      if (left_.empty() || (left_[0] | 0x20) < 'a' || (left_[0] | 0x20) > 'z') throw refuse("");
      return one(next() & 0x1FU);
    case 'p':
    case 'P':
      throw refuse(", a class by Unicode property");
    default:
      throw refuse(c >= '1' && c <= '9' ? ", a reference to a group" : "");
    }
  }

  char32_t hex(int digits_wanted) {
    char32_t value = 0;
    for (int i = 0; i < digits_wanted; ++i) {
      const char c = left_.empty() ? 0 : left_[0];
      const char low = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9')
        value = value * 16 + static_cast<char32_t>(c - '0');
      else if (low >= 'a' && low <= 'f')
        value = value * 16 + static_cast<char32_t>(low - 'a' + 10);
      else
        throw unsupported("an escape with too few hexadecimal digits");
      left_.remove_prefix(1);
    }
    return value;
  }

  char32_t unicode() {
    if (take("{")) {
      char32_t value = 0;
      do {
        value = value * 16 + hex(1);
        if (value > last_code_point) throw unsupported("a code point that there is none of");
      } while (!left_.starts_with('}'));
      take("}");
      return value;
    }
    const auto high = hex(4);
    if (high < 0xD800 || high > 0xDFFF) return high;
    if (high < 0xDC00 && take("\\u")) {
      const auto low = hex(4);
      if (low >= 0xDC00 && low <= 0xDFFF)
        return 0x10000 + ((high - 0xD800) << 10U) + (low - 0xDC00);
    }
    throw unsupported("half a surrogate pair");
  }

  /// The next code point; what is no UTF-8 comes in bytes, and then matches nothing that is.
  char32_t next() {
    const auto byte = static_cast<unsigned char>(left_[0]);
    std::size_t length = byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    length = std::min(length, left_.size());
    char32_t c = length == 1 ? byte : byte & (0xFFU >> (length + 1));
    for (std::size_t i = 1; i < length; ++i)
      c = (c << 6U) | (static_cast<unsigned char>(left_[i]) & 0x3FU);
    left_.remove_prefix(length);
    return std::min(c, last_code_point);
  }

  std::string_view left_;
};

}  // namespace

expected<std::string> pattern_of_json_text(std::string_view pattern) {
  try {
    return translator(pattern).whole();
  } catch (const unsupported& e) {
    return error{"pattern", e.what()};
  }
}

}  // namespace troupe::gguf
