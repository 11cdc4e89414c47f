#include "apps/console/table.hpp"

#include <algorithm>

namespace troupe::apps::console {

namespace {

std::string text_of(const cell& c) {
  if (const auto* n = std::get_if<std::int64_t>(&c)) return std::to_string(*n);
  return printable(std::get<std::string>(c));
}

/// Characters, near enough: continuation bytes of UTF-8 take no room.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U;
  }));
}

}  // namespace

std::string printable(const std::string& text) {
  std::string out;
  for (const char c : text) out += static_cast<unsigned char>(c) < ' ' || c == 0x7f ? '?' : c;
  return out;
}

std::string to_text(const table& t) {
  std::vector<std::vector<std::string>> lines{t.columns};
  for (const auto& row : t.rows) {
    auto& line = lines.emplace_back();
    for (const auto& c : row) line.push_back(text_of(c));
  }
  std::vector<std::size_t> widths(t.columns.size());
  for (const auto& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i)
      widths[i] = std::max(widths[i], width_of(line[i]));
  std::string out;
  for (std::size_t l = 0; l < lines.size(); ++l) {
    std::string text;
    for (std::size_t i = 0; i < lines[l].size(); ++i) {
      const auto& x = lines[l][i];
      const std::string room(widths[i] - width_of(x), ' ');
      const bool right = l > 0 && std::holds_alternative<std::int64_t>(t.rows[l - 1][i]);
      text += (i > 0 ? "  " : "") + (right ? room + x : x + room);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  }
  return out;
}

}  // namespace troupe::apps::console
