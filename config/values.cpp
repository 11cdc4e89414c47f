#include "config/values.hpp"

#include <fmt/format.h>

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>

namespace troupe::config {

namespace {

struct unit {
  std::string_view name;
  std::int64_t factor;
};

// Largest first, as the formatting below needs it.
constexpr unit durations[] = {{"h", 3'600'000}, {"m", 60'000}, {"s", 1'000}, {"ms", 1}};
constexpr unit binary_sizes[] = {{"GiB", 1LL << 30}, {"MiB", 1LL << 20}, {"KiB", 1LL << 10}};
constexpr unit decimal_sizes[] = {
    {"GB", 1'000'000'000}, {"MB", 1'000'000}, {"kB", 1'000}, {"B", 1}};

struct quantity {
  std::int64_t number;
  std::string_view unit;
};

std::optional<quantity> split(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{} || number < 0) return std::nullopt;
  auto rest = text.substr(static_cast<std::size_t>(end - text.data()));
  if (rest.starts_with(' ')) rest.remove_prefix(1);
  return quantity{number, rest};
}

std::optional<std::int64_t> scale(const quantity& q, std::int64_t factor) {
  if (q.number > std::numeric_limits<std::int64_t>::max() / factor) return std::nullopt;
  return q.number * factor;
}

bool is_alnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

expected<std::string> expand_variables(std::string_view written, const environment& env) {
  std::string out;
  while (!written.empty()) {
    const auto start = written.find("${");
    out += written.substr(0, start);
    if (start == std::string_view::npos) break;
    const auto end = written.find('}', start);
    if (end == std::string_view::npos) return error{"path_invalid", "`${` without a closing `}`"};
    const auto inside = written.substr(start + 2, end - start - 2);
    const auto dash = inside.find(":-");
    const std::string name{inside.substr(0, dash)};
    auto value = name.empty() || name.find('\0') != std::string::npos ? std::nullopt : env(name);
    // As in a shell, `:-` also stands in for a variable that is set but empty.
    if (dash != std::string_view::npos && (!value || value->empty()))
      value = std::string{inside.substr(dash + 2)};
    if (!value)
      return error{
          "path_invalid",
          fmt::format("the environment variable {} is not set; ${{{}:-...}} gives a default", name,
                      name)};
    out += *value;
    written.remove_prefix(end + 1);
  }
  return out;
}

}  // namespace

std::optional<milliseconds> parse_duration(std::string_view text) {
  const auto q = split(text);
  if (!q) return std::nullopt;
  for (const auto& u : durations) {
    if (q->unit != u.name) continue;
    const auto value = scale(*q, u.factor);
    return value ? std::optional{milliseconds{*value}} : std::nullopt;
  }
  return std::nullopt;
}

std::string format_duration(milliseconds value) {
  for (const auto& u : durations)
    if (value.count() != 0 && value.count() % u.factor == 0)
      return fmt::format("{}{}", value.count() / u.factor, u.name);
  return fmt::format("{}ms", value.count());
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  const auto q = split(text);
  if (!q) return std::nullopt;
  const auto in = [&](const auto& units) -> std::optional<std::int64_t> {
    for (const auto& u : units)
      if (q->unit == u.name) return scale(*q, u.factor);
    return std::nullopt;
  };
  auto value = q->unit.empty() ? std::optional{q->number} : in(binary_sizes);
  if (!value) value = in(decimal_sizes);
  return value ? std::optional{static_cast<std::uint64_t>(*value)} : std::nullopt;
}

std::string format_bytes(std::uint64_t value) {
  for (const auto& u : binary_sizes) {
    const auto factor = static_cast<std::uint64_t>(u.factor);
    if (value != 0 && value % factor == 0) return fmt::format("{}{}", value / factor, u.name);
  }
  return fmt::format("{}B", value);
}

std::optional<std::pair<std::uint32_t, std::uint32_t>> parse_cpus(std::string_view text) {
  const auto number = [](std::string_view digits) -> std::optional<std::uint32_t> {
    std::uint32_t value = 0;
    const auto* end = digits.data() + digits.size();
    const auto [stop, ec] = std::from_chars(digits.data(), end, value);
    if (ec != std::errc{} || stop != end || value > cpu_max) return std::nullopt;
    return value;
  };
  const auto dash = text.find('-');
  const auto first = number(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : number(text.substr(dash + 1));
  if (!first || !last || *first > *last) return std::nullopt;
  return std::pair{*first, *last};
}

bool is_address(const std::string& text) {
  std::array<unsigned char, sizeof(in6_addr)> binary{};
  if (text.find('\0') != std::string::npos) return false;
  return inet_pton(AF_INET, text.c_str(), binary.data()) == 1 ||
         inet_pton(AF_INET6, text.c_str(), binary.data()) == 1;
}

bool is_loopback(const std::string& address) {
  in_addr v4{};
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24U) == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, address.c_str(), &v6) == 1 &&
         std::memcmp(&v6, &in6addr_loopback, sizeof(v6)) == 0;
}

bool is_wildcard(const std::string& address) {
  in_addr v4{};
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) return v4.s_addr == 0;
  in6_addr v6{};
  return inet_pton(AF_INET6, address.c_str(), &v6) == 1 &&
         std::memcmp(&v6, &in6addr_any, sizeof(v6)) == 0;
}

bool is_name(std::string_view text) {
  if (text.empty() || text.size() > name_chars_max) return false;
  if (!is_alnum(text.front()) || !is_alnum(text.back())) return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return is_alnum(c) || c == '-' || c == '_' || c == '.'; });
}

bool is_dns_pattern(std::string_view text) {
  if (text == "*") return true;
  if (text.starts_with("*.")) text.remove_prefix(2);
  if (text.empty() || text.size() > dns_name_chars_max || text.find("..") != std::string_view::npos)
    return false;
  return is_alnum(text.front()) && is_alnum(text.back()) &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return is_alnum(c) || c == '-' || c == '_' || c == '.'; });
}

bool is_key_hash(std::string_view text) {
  constexpr std::size_t digits = 64;
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isxdigit(c) != 0;
         });
}

bool is_model_name(std::string_view text) {
  if (text.empty() || text.size() > model_name_chars_max) return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c > ' ' && c < 0x7f && c != '"' && c != '\\'; });
}

expected<std::string> expand_path(std::string_view written, const std::string& folder,
                                  const environment& env) {
  auto expanded = expand_variables(written, env);
  if (!expanded) return expanded;
  auto path = *std::move(expanded);
  if (path.find('\0') != std::string::npos) return error{"path_invalid", "a path has no NUL byte"};
  if (path == "~" || path.starts_with("~/")) {
    const auto home = env("HOME");
    if (!home) return error{"path_invalid", "`~` needs the environment variable HOME"};
    path.replace(0, 1, *home);
  }
  if (path.empty()) return error{"path_invalid", "the path is empty"};
  return (std::filesystem::path{folder} / path).lexically_normal().string();
}

}  // namespace troupe::config
