#include "apps/config_command.hpp"

#include "config/calibration.hpp"
#include "config/check.hpp"
#include "config/effective.hpp"
#include "config/parse.hpp"

#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace troupe::apps {

namespace {

constexpr int exit_problems = 1;

std::string counted(std::size_t n, const char* what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

int report(const std::vector<config::problem>& problems, std::ostream& err) {
  for (const auto& p : problems) err << to_string(p) << "\n";
  err << counted(problems.size(), "problem") << "\n";
  return exit_problems;
}

/// What stands in another file is no part of this one.
std::string as_comment(const std::string& text) {
  std::string out;
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);) out += "# " + line + "\n";
  return out;
}

std::string summary(const config::cluster& c) {
  std::size_t engines = 0;
  for (const auto& h : c.hosts) engines += config::engines_on(c, h.name).size();
  return fmt::format("ok: cluster \"{}\" with {}, {}, {} in {}, {}, {}{}; digest {}", c.section.id,
                     counted(c.hosts.size(), "host"), counted(c.models.size(), "model"),
                     counted(engines, "engine"), counted(c.pools.size(), "pool"),
                     counted(c.gateways.size(), "gateway"), counted(c.routers.size(), "router"),
                     c.control ? fmt::format(", control on {}", c.control->host) : "", c.digest);
}

}  // namespace

int check_config(const std::string& file, std::ostream& out, std::ostream& err) {
  const auto result = config::load(file);
  if (!result) return report(result.problems, err);
  const auto costs = config::read_costs(*result.value);
  if (!costs.problems.empty()) return report(costs.problems, err);
  for (const auto& w : config::warnings(*result.value)) err << to_string(w) << "\n";
  out << file << ": " << summary(*result.value) << "\n";
  return 0;
}

int show_config(const std::string& file, std::ostream& out, std::ostream& err) {
  const auto result = config::load(file);
  if (!result) return report(result.problems, err);
  const auto costs = config::read_costs(*result.value);
  if (!costs.problems.empty()) return report(costs.problems, err);
  out << config::print_effective(*result.value, true);
  for (const auto& [pool, c] : costs.of_pool)
    out << fmt::format("\n# costs of pool \"{}\", from {}:\n{}", pool, c.file,
                       as_comment(config::print_costs(c)));
  return 0;
}

void add_config_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("config", "Check and show cluster files");
  command->require_subcommand(1);
  // Shared by both subcommands, and alive as long as their callbacks.
  auto file = std::make_shared<std::string>();

  auto* check = command->add_subcommand("check",
                                        "List everything that is wrong with a cluster file");
  check->add_option("FILE", *file, "Cluster file")->required();
  check->callback([file, &exit_code] { exit_code = check_config(*file, std::cout, std::cerr); });

  auto* show = command->add_subcommand(
      "show", "Print every value in effect, and the line or default that it comes from");
  show->add_option("FILE", *file, "Cluster file")->required();
  show->callback([file, &exit_code] { exit_code = show_config(*file, std::cout, std::cerr); });

  auto* reference = command->add_subcommand("reference", "Print all keys of a cluster file");
  reference->callback([&exit_code] {
    std::cout << config::print_reference();
    exit_code = 0;
  });
}

}  // namespace troupe::apps
