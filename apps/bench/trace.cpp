#include "apps/bench/trace.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string_view>

namespace troupe::bench {

namespace {

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number value{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

nanoseconds seconds_to_time(double seconds) {
  return nanoseconds{static_cast<std::int64_t>(seconds * 1e9)};
}

/// `2023-11-16 18:17:03.9799600`
std::optional<nanoseconds> date_time(std::string_view text) {
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || text[10] != ' ' || text[13] != ':' ||
      text[16] != ':')
    return std::nullopt;
  const auto year = number_in<int>(text.substr(0, 4));
  const auto month = number_in<unsigned>(text.substr(5, 2));
  const auto day = number_in<unsigned>(text.substr(8, 2));
  const auto hour = number_in<int>(text.substr(11, 2));
  const auto minute = number_in<int>(text.substr(14, 2));
  const auto second = number_in<double>(text.substr(17));
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year{*year}, std::chrono::month{*month},
                                         std::chrono::day{*day}};
  if (!date.ok() || *hour > 23 || *minute > 59 || !(*second >= 0 && *second < 61))
    return std::nullopt;
  return std::chrono::sys_days{date}.time_since_epoch() + std::chrono::hours{*hour} +
         std::chrono::minutes{*minute} + seconds_to_time(*second);
}

std::optional<nanoseconds> timestamp(std::string_view text) {
  if (const auto seconds = number_in<double>(text); seconds && *seconds >= 0 && *seconds < 9e9)
    return seconds_to_time(*seconds);
  return date_time(text);
}

std::optional<trace_entry> csv_row(std::string_view line) {
  const auto first = line.find(',');
  if (first == std::string_view::npos) return std::nullopt;
  const auto second = line.find(',', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  const auto at = timestamp(line.substr(0, first));
  const auto prompt = number_in<std::uint32_t>(line.substr(first + 1, second - first - 1));
  const auto output = number_in<std::uint32_t>(line.substr(second + 1));
  if (!at || !prompt || !output) return std::nullopt;
  return trace_entry{*at, *prompt, *output, {}};
}

class json_rows {
 public:
  std::optional<trace_entry> read(std::string_view line) {
    simdjson::dom::element row;
    double at_ms = 0;
    std::uint64_t prompt = 0;
    std::uint64_t output = 0;
    if (parser_.parse(line.data(), line.size()).get(row) || row["timestamp"].get(at_ms) ||
        row["input_length"].get(prompt) || row["output_length"].get(output))
      return std::nullopt;
    constexpr auto tokens_max = std::numeric_limits<std::uint32_t>::max();
    if (!(at_ms >= 0 && at_ms < 9e12) || prompt > tokens_max || output > tokens_max)
      return std::nullopt;
    trace_entry entry{seconds_to_time(at_ms / 1e3),
                      static_cast<std::uint32_t>(prompt),
                      static_cast<std::uint32_t>(output),
                      {}};
    simdjson::dom::array ids;
    if (!row["hash_ids"].get(ids))
      for (auto id : ids) {
        std::uint64_t value = 0;
        if (id.get(value)) return std::nullopt;
        entry.blocks.push_back(value);
      }
    return entry;
  }

 private:
  simdjson::dom::parser parser_;
};

}  // namespace

namespace {

enum class next_line : std::uint8_t { here, end, too_long };

/// What is no trace may have no lines.
next_line read_line(std::istream& in, std::string& line) {
  line.clear();
  while (true) {
    const auto c = in.get();
    if (c == std::istream::traits_type::eof())
      return line.empty() ? next_line::end : next_line::here;
    if (c == '\n') return next_line::here;
    if (line.size() == trace_line_bytes_max) return next_line::too_long;
    line += static_cast<char>(c);
  }
}

}  // namespace

expected<std::vector<trace_entry>> read_trace(std::istream& in) {
  std::vector<trace_entry> entries;
  json_rows json;
  std::string line;
  for (std::size_t number = 1; entries.size() < trace_entries_max; ++number) {
    const auto got = read_line(in, line);
    if (got == next_line::end) break;
    if (got == next_line::too_long)
      return error{"trace_invalid",
                   fmt::format("line {}: longer than {} bytes", number, trace_line_bytes_max)};
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty() || (number == 1 && line.find("TIMESTAMP") != std::string::npos)) continue;
    auto entry = line.front() == '{' ? json.read(line) : csv_row(line);
    if (!entry)
      return error{"trace_invalid",
                   fmt::format("line {}: neither TIMESTAMP,ContextTokens,GeneratedTokens nor a "
                               "JSON object with timestamp, input_length and output_length",
                               number)};
    entries.push_back(*std::move(entry));
  }
  if (entries.empty()) return error{"trace_invalid", "the trace has no requests"};
  std::stable_sort(entries.begin(), entries.end(),
                   [](const trace_entry& a, const trace_entry& b) { return a.at < b.at; });
  const auto start = entries.front().at;
  for (auto& entry : entries) entry.at -= start;
  return entries;
}

expected<std::vector<trace_entry>> load_trace(const std::string& path) {
  std::ifstream in{path};
  if (!in) return error{"trace_unreadable", fmt::format("{} cannot be opened", path)};
  auto entries = read_trace(in);
  if (!entries)
    return error{entries.error().code, fmt::format("{}: {}", path, entries.error().message)};
  return entries;
}

}  // namespace troupe::bench
