#include "apps/sim/sim_command.hpp"

#include "apps/sim/chaos_run.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdio>
#include <memory>

namespace troupe::apps {

namespace {

struct chaos_arguments {
  sim::run_options run;
  std::uint64_t runs = 1;
  bool verbose = false;
};

int run(const chaos_arguments& a) {
  spdlog::set_level(a.verbose ? spdlog::level::debug : spdlog::level::off);
  int bad = 0;
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < a.runs; ++i) {
    auto o = a.run;
    o.seed += i;
    o.readable = a.verbose;
    const auto r = sim::run_chaos(o);
    for (const auto& line : r.lines)
      fmt::print("{:12.6f} {:<22} {}\n",
                 std::chrono::duration<double>(line.at.time_since_epoch()).count() - 3600,
                 line.subject, line.text);
    fmt::print("seed {}: hash {:016x}, {} events, {} ms, {} requests, {} finished, {} failed, {} "
               "left, {} cut off, {} faults;",
               r.seed, r.hash, r.events, r.virtual_time.count(), r.requests, r.finished, r.failed,
               r.left, r.cut_off, r.faults);
    for (const auto& [code, n] : r.failures) fmt::print(" {} {}", n, code);
    fmt::print("\n");
    for (const auto& f : r.findings) fmt::print("  {}: {}\n", f.checker, f.text);
    bad += r.findings.empty() ? 0 : 1;
  }
  const auto took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{} runs, {} bad, {:.3f} s each\n", a.runs, bad, took / static_cast<double>(a.runs));
  return bad == 0 ? 0 : 1;
}

}  // namespace

void add_sim_command(CLI::App& app, int& exit_code) {
  auto* sim = app.add_subcommand("sim", "Simulates a cluster in one process");
  sim->require_subcommand(1);
  auto a = std::make_shared<chaos_arguments>();
  auto* chaos = sim->add_subcommand("chaos", "Runs the cluster under faults, by seed");
  chaos->add_option("--seed", a->run.seed, "the first seed");
  chaos->add_option("--runs", a->runs, "how many seeds, counting up");
  chaos->add_option("--requests", a->run.requests, "of each run");
  chaos->add_option("--faults", a->run.faults, "of each run; 0: none");
  chaos->add_flag("--verbose", a->verbose, "print each run's history");
  chaos->callback([a, &exit_code] { exit_code = run(*a); });
}

}  // namespace troupe::apps
