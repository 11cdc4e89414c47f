#include "actors/gateway/http/host_check.hpp"

#include "config/values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace troupe::gateway::http {

namespace {

namespace bhttp = boost::beast::http;
using openai::make_error;

constexpr std::string_view localhost = "localhost";
/// Of a name that is quoted in an error.
constexpr std::size_t quoted_chars_max = 100;

std::string lower(std::string_view text) {
  std::string out{text};
  for (auto& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

/// What the request is for: of a target in absolute form its authority, which then counts instead
/// of the header.
std::string_view authority_of(std::string_view target, std::string_view header) {
  const auto scheme = target.find("://");
  if (target.starts_with('/') || scheme == std::string_view::npos) return header;
  target.remove_prefix(scheme + 3);
  return target.substr(0, target.find_first_of("/?#"));
}

struct host_part {
  std::string name;  ///< lower case, without the dot of the root
  bool address = false;
};

/// `name`, `1.2.3.4` or `[::1]`, and a port or none. None for anything else.
std::optional<host_part> parse_authority(std::string_view text) {
  host_part out;
  std::string_view rest;
  if (text.starts_with('[')) {
    const auto end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    out.name = text.substr(1, end - 1);
    if (out.name.find(':') == std::string::npos || !config::is_address(out.name))
      return std::nullopt;
    out.address = true;
    rest = text.substr(end + 1);
  } else {
    const auto colon = std::min(text.find(':'), text.size());
    out.name = lower(text.substr(0, colon));
    if (out.name.ends_with('.')) out.name.pop_back();
    const bool letters = std::all_of(out.name.begin(), out.name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    });
    if (out.name.empty() || !letters) return std::nullopt;
    out.address = config::is_address(out.name);
    rest = text.substr(colon);
  }
  if (rest.empty()) return out;
  const auto port = rest.substr(1);
  const bool digits = std::all_of(port.begin(), port.end(),
                                  [](char c) { return c >= '0' && c <= '9'; });
  return rest.front() == ':' && digits ? std::optional{std::move(out)} : std::nullopt;
}

bool known_as(const known_names& known, const std::string& name) {
  // All below localhost is this machine, too (RFC 6761).
  if (name == localhost || name.ends_with(".localhost")) return true;
  return std::any_of(known.names.begin(), known.names.end(), [&](const std::string& k) {
    return k.starts_with('*')
               ? name.size() > k.size() - 1 && name.ends_with(std::string_view{k}.substr(1))
               : name == k;
  });
}

}  // namespace

known_names known_names::of(const std::string& address, bool encrypted,
                            const std::vector<std::string>& server_names) {
  known_names out;
  for (const auto& n : server_names) {
    out.any = out.any || n == "*";
    out.names.push_back(lower(n));
  }
  out.any = out.any || (server_names.empty() && (encrypted || !config::is_loopback(address)));
  return out;
}

std::optional<openai::api_error> check_host(const bhttp::header<true, bhttp::fields>& head,
                                            const known_names& known) {
  const auto hosts = head.count(bhttp::field::host);
  if (hosts == 0 && head.version() < 11) return std::nullopt;  // no browser speaks HTTP/1.0
  if (hosts != 1)
    return make_error(400, "host_header_invalid",
                      hosts == 0 ? "A request by HTTP/1.1 needs a Host header."
                                 : "A request has one Host header.",
                      "Host");
  const auto target = head.target();
  const auto header = head[bhttp::field::host];
  const auto host = parse_authority(
      authority_of({target.data(), target.size()}, {header.data(), header.size()}));
  if (!host)
    return make_error(400, "host_header_invalid",
                      "The Host header must be a name or an IP address, and a port or none.",
                      "Host");
  if (known.any || host->address || known_as(known, host->name)) return std::nullopt;
  return make_error(
      421, "host_not_known",
      fmt::format("This gateway does not go by the name '{}'. Use its IP address or localhost, or "
                  "add the name to `server_names` of [[gateway]] in the cluster file.",
                  host->name.substr(0, quoted_chars_max)),
      "Host");
}

}  // namespace troupe::gateway::http
