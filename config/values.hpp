#pragma once

#include "config/cluster.hpp"
#include "messages/base/expected.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace troupe::config {

/// Looks up a variable of the environment; none where it is not set.
using environment = std::function<std::optional<std::string>(const std::string&)>;

/// `500ms`, `10s`, `2m`, `1h`; whole numbers only. None for anything else, a unit left out, or an
/// overflow.
std::optional<milliseconds> parse_duration(std::string_view text);
/// The shortest exact way to write it: `90s`, `2m`, `1500ms`.
std::string format_duration(milliseconds value);

/// `4096`, `64KiB`, `64MiB`, `2GiB`, also `B`, `kB`, `MB`, `GB` (decimal). None for anything else
/// or an overflow of 63 bits.
std::optional<std::uint64_t> parse_bytes(std::string_view text);
std::string format_bytes(std::uint64_t value);

/// An IPv4 or IPv6 address, written out; names are not resolved.
bool is_address(const std::string& text);
bool is_loopback(const std::string& address);
/// `0.0.0.0`, `::`: all addresses of a machine.
bool is_wildcard(const std::string& address);

/// A name of hosts, pools and clusters: letters, digits, `-`, `_` and inner dots, since it becomes
/// a part of directory names.
bool is_name(std::string_view text);
inline constexpr std::size_t name_chars_max = 63;
/// A host's name as in DNS, `*.` and such a name for all below it, or `*` for any.
bool is_dns_pattern(std::string_view text);
inline constexpr std::size_t dns_name_chars_max = 253;
/// A CPU's number, or a range of them such as `4-7`; ascending. None for anything else, and for
/// numbers above `cpu_max`.
std::optional<std::pair<std::uint32_t, std::uint32_t>> parse_cpus(std::string_view text);
inline constexpr std::uint32_t cpu_max = 1'023;  // what a mask of Linux holds by default
/// The SHA-256 of an API key: 64 hexadecimal digits.
bool is_key_hash(std::string_view text);
/// A model's name, which clients send: printable, no spaces.
bool is_model_name(std::string_view text);
inline constexpr std::size_t model_name_chars_max = 128;

/// Replaces `${NAME}`, `${NAME:-default}` and a leading `~`, and makes the path relative to
/// `folder` where it is not absolute. Errors: `path_invalid` for a variable that is not set and has
/// no default, or an unclosed `${`.
expected<std::string> expand_path(std::string_view written, const std::string& folder,
                                  const environment& env);

}  // namespace troupe::config
