#pragma once

#include "config/parse.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::config::testing {

/// The smallest valid file, in sections that a test can replace.
struct sample {
  std::string cluster = "[cluster]\nid = 'test'\n";
  std::string hosts = "[[host]]\nname = 'h0'\naddress = '127.0.0.1'\nport = 7100\n";
  std::string models = "[[model]]\nname = 'm'\npath = '/models/m.gguf'\n";
  std::string pools = "[[pool]]\nname = 'p'\nmodel = 'm'\nhosts = ['h0']\n";
  std::string gateways = "[[gateway]]\nhost = 'h0'\nport = 8080\n";
  std::string routers = "[[router]]\nhost = 'h0'\n";
  std::string rest;

  std::string text() const { return cluster + hosts + models + pools + gateways + routers + rest; }
};

inline environment fake_environment(std::map<std::string, std::string> variables = {
                                        {"HOME", "/home/me"}}) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto i = variables.find(name);
    return i == variables.end() ? std::nullopt : std::optional{i->second};
  };
}

inline load_result parse_text(std::string_view text) {
  return parse(text, "/etc/troupe/c.toml", fake_environment());
}

/// All problems as `line:column: message` lines.
inline std::vector<std::string> problems_of(std::string_view text) {
  std::vector<std::string> out;
  for (const auto& p : parse_text(text).problems)
    out.push_back((p.where.line == 0 ? ""
                                     : std::to_string(p.where.line) + ":" +
                                           std::to_string(p.where.column) + ": ") +
                  p.message);
  return out;
}

inline std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const auto& line : lines) out += line + "\n";
  return out;
}

}  // namespace troupe::config::testing
