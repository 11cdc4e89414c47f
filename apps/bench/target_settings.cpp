#include "apps/bench/target_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

namespace troupe::bench {

namespace {

using header_list = std::vector<std::pair<std::string, std::string>>;

expected<header_list> headers_of(const target_settings& s) {
  header_list headers;
  for (const auto& header : s.headers) {
    const auto colon = header.find(':');
    if (colon == std::string::npos || colon == 0)
      return error{"usage", fmt::format("--header \"{}\" is not \"Name: value\"", header)};
    if (std::any_of(header.begin(), header.end(),
                    [](unsigned char c) { return c < ' ' || c == 0x7f; }))
      return error{"usage", "a --header has a control character"};
    const auto value = std::min(header.find_first_not_of(' ', colon + 1), header.size());
    headers.emplace_back(header.substr(0, colon), header.substr(value));
  }
  if (!s.api_key.empty()) headers.emplace_back("Authorization", "Bearer " + s.api_key);
  return headers;
}

expected<std::shared_ptr<tls_context>> tls_of(const target_settings& s) {
  if (s.insecure && !s.ca_file.empty())
    return error{"usage", "--insecure and --ca-file contradict each other"};
  auto made = make_tls_context({s.insecure, s.ca_file});
  if (!made) return error{"usage", made.error().message};
  return made;
}

}  // namespace

expected<std::vector<http_target>> targets_of(const target_settings& s) {
  const auto headers = headers_of(s);
  if (!headers) return headers.error();
  std::vector<http_target> targets;
  std::shared_ptr<tls_context> tls;  // for the first URL that needs it
  for (const auto& url : s.urls) {
    auto target = parse_url(url);
    if (!target) return error{"usage", target.error().message};
    target->headers = *headers;
    if (target->https && !tls) {
      auto made = tls_of(s);
      if (!made) return made.error();
      tls = *std::move(made);
    }
    if (target->https) target->tls = tls;
    targets.push_back(*std::move(target));
  }
  if (targets.empty()) return error{"usage", "say where requests go, with --url"};
  if (!tls && (s.insecure || !s.ca_file.empty()))
    return error{"usage", "--insecure and --ca-file have no effect without an https:// URL"};
  const std::chrono::milliseconds wait{static_cast<std::int64_t>(s.wait_ready_s * 1e3)};
  if (wait.count() > 0)
    for (const auto& target : targets)
      if (auto ready = await_ready(target, wait); !ready) return ready.error();
  return targets;
}

}  // namespace troupe::bench
