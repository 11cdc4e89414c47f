#include "config/nesting.hpp"

#include <algorithm>

namespace troupe::config {

namespace {

/// Walks a text by TOML's rules for strings and comments, and knows nothing else of it.
class scanner {
 public:
  explicit scanner(std::string_view text) : text_(text) {}

  std::optional<text_position> run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"' || c == '\'') {
        skip_string(c);
        continue;
      }
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
        continue;
      }
      if (c == '\n') {
        new_line();
      } else if (c == '.') {
        ++dots_;
      } else if (c == '[' || c == '{') {
        ++depth_;
      } else if ((c == ']' || c == '}') && depth_ > 0) {
        --depth_;
      }
      if (dots_ > nesting_max || depth_ > nesting_max)
        return text_position{line_, static_cast<std::uint32_t>(at_ - line_start_ + 1)};
      ++at_;
    }
    return std::nullopt;
  }

 private:
  void new_line() {
    ++line_;
    line_start_ = at_ + 1;
    dots_ = 0;
  }

  void skip_string(char quote) {
    const bool basic = quote == '"';
    const std::string_view triple = basic ? R"(""")" : "'''";
    const bool multiline = text_.substr(at_).starts_with(triple);
    at_ += multiline ? 3 : 1;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\n') {
        // Only a mistake ends a line inside a plain string.
        if (!multiline) return;
        new_line();
      } else if (basic && text_[at_] == '\\') {
        // The escaped character may be a line's end, which must still be counted.
        if (at_ + 1 < text_.size() && text_[at_ + 1] != '\n') ++at_;
      } else if (multiline ? text_.substr(at_).starts_with(triple) : text_[at_] == quote) {
        at_ += multiline ? 3 : 1;
        // Up to two quotes may stand before the closing three.
        for (int more = 0; multiline && more < 2 && at_ < text_.size() && text_[at_] == quote;
             ++more)
          ++at_;
        return;
      }
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t line_start_ = 0;
  std::uint32_t line_ = 1;
  std::size_t dots_ = 0;
  std::size_t depth_ = 0;
};

}  // namespace

std::optional<text_position> find_excessive_nesting(std::string_view text) {
  return scanner{text}.run();
}

}  // namespace troupe::config
