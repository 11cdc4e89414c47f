#include "apps/sim/sim_command.hpp"

#include "apps/sim/outage_run.hpp"
#include "apps/sim/report.hpp"
#include "messages/base/exit_codes.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>

namespace troupe::apps {

namespace {

/// Of a run that found something.
constexpr std::size_t story_lines_max = 120;
/// A long batch writes its state after so many runs.
constexpr std::uint64_t save_interval_runs = 50;
/// More bad runs than this are counted, but their stories are not told.
constexpr std::size_t stories_max = 5;

struct chaos_arguments {
  sim::run_options run;
  std::uint64_t runs = 1;
  std::string only;
  std::string planted = "none";
  std::string state;
  bool json = false;
  bool verbose = false;
  bool until_found = false;
  bool all_covered = false;
};

struct outage_arguments {
  sim::outage_options run;
  std::uint64_t runs = 1;
  std::int64_t outage_s = sim::outage_options{}.outage.count();
  std::string planted = "none";
  bool verbose = false;
};
constexpr std::int64_t outage_min_s = 30, outage_max_s = 86'400;
constexpr std::uint32_t rate_max = 1'000;

/// All of it, for whoever reads one run.
void print_history(const sim::run_result& r) {
  for (const auto& line : r.lines)
    fmt::print("{:12.6f} {:<22} {}\n",
               std::chrono::duration<double>(line.at.time_since_epoch()).count() - 3'600,
               line.subject, line.text);
  fmt::print("seed {}: hash {:016x}, {} events, {} ms of its own time\n", r.seed, r.hash, r.events,
             r.virtual_time.count());
}

/// Once more, with words: the same seed does the same.
void tell_story(sim::run_options o) {
  o.readable = true;
  fmt::print("{}  replay: {}\n", sim::story(sim::run_chaos(o), story_lines_max),
             sim::replay_command(o));
}

void write_state(const std::string& file, const sim::batch& b) {
  const auto next = file + ".new";
  std::ofstream{next} << sim::save(b);
  if (std::rename(next.c_str(), file.c_str()) != 0)
    fmt::print(stderr, "troupe sim: the state cannot be written to {}\n", file);
}

expected<sim::batch> begin(const chaos_arguments& a) {
  sim::batch b;
  b.options = a.run;
  b.next_seed = a.run.seed;
  std::ifstream in{a.state};
  if (a.state.empty() || !in) return b;
  std::stringstream text;
  text << in.rdbuf();
  return sim::load(text.str(), a.run);
}

int run(chaos_arguments a) {
  spdlog::set_level(spdlog::level::off);
  if (!a.only.empty()) {
    auto kinds = sim::parse_faults(a.only);
    if (!kinds) {
      fmt::print(stderr, "troupe sim: {}\n", kinds.error().message);
      return exit_usage;
    }
    a.run.only = *std::move(kinds);
  }
  a.run.planted = sim::parse_bug(a.planted);
  if (a.run.planted == planted::bug::none && a.planted != "none") {
    fmt::print(stderr, "troupe sim: there is no planted bug '{}'\n", a.planted);
    return exit_usage;
  }
  auto begun = begin(a);
  if (!begun) {
    fmt::print(stderr, "troupe sim: {}\n", begun.error().message);
    return exit_usage;
  }
  auto& b = *begun;
  const auto already = b.seconds;
  const auto start = std::chrono::steady_clock::now();
  while (b.runs < a.runs) {
    auto o = a.run;
    o.seed = b.next_seed;
    o.readable = a.verbose;
    const auto r = sim::run_chaos(o);
    b.add(r);
    b.seconds = already +
                std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (a.verbose) print_history(r);
    if (!r.findings.empty() && !a.json && b.bad.size() <= stories_max) tell_story(o);
    if (!a.state.empty() && b.runs % save_interval_runs == 0) write_state(a.state, b);
    if (a.until_found && !r.findings.empty()) break;
  }
  if (!a.state.empty()) write_state(a.state, b);
  fmt::print("{}", a.json ? sim::to_json(b) + "\n" : sim::to_text(b));
  const bool covered = !a.all_covered || b.never_hit().empty();
  return b.bad.empty() && covered ? exit_ok : exit_failure;
}

int run(outage_arguments a) {
  spdlog::set_level(spdlog::level::off);
  a.run.planted = sim::parse_bug(a.planted);
  if (a.run.planted == planted::bug::none && a.planted != "none") {
    fmt::print(stderr, "troupe sim: there is no planted bug '{}'\n", a.planted);
    return exit_usage;
  }
  a.run.outage = std::chrono::seconds{a.outage_s};
  a.run.readable = a.verbose;
  bool all_well = true;
  for (std::uint64_t i = 0; i < a.runs; ++i, ++a.run.seed) {
    const auto r = sim::run_outage(a.run);
    if (a.verbose) print_history(r.run);
    fmt::print("{}", sim::to_text(r));
    if (r.run.findings.empty()) continue;
    all_well = false;
    auto o = a.run;
    o.readable = true;
    fmt::print("{}  replay: {}\n",
               sim::story(a.verbose ? r.run : sim::run_outage(o).run, story_lines_max),
               sim::replay_command(a.run));
  }
  return all_well ? exit_ok : exit_failure;
}

}  // namespace

void add_sim_command(CLI::App& app, int& exit_code) {
  auto* sim = app.add_subcommand("sim", "Simulates a cluster in one process");
  sim->require_subcommand(1);
  auto a = std::make_shared<chaos_arguments>();
  auto* chaos = sim->add_subcommand(
      "chaos", "Runs a cluster of three hosts under faults, by seed, and checks what came of it");
  chaos->add_option("--seed", a->run.seed, "the first seed")->capture_default_str();
  chaos->add_option("--runs", a->runs, "how many seeds, counting up")->capture_default_str();
  chaos->add_option("--requests", a->run.requests, "of each run")->capture_default_str();
  chaos->add_option("--faults", a->run.faults, "of each run; 0: none")->capture_default_str();
  chaos->add_option("--only", a->only, "kinds of faults, parted by commas; without it all");
  chaos->add_option("--planted", a->planted, "puts a bug in, which the checkers must find");
  chaos->add_option("--state", a->state, "a file to go on from, and to write to now and then");
  chaos->add_flag("--until-found", a->until_found, "ends with the first run that finds something");
  chaos->add_flag("--all-covered", a->all_covered,
                  "fails when a fault has never hit a request in some phase, too");
  chaos->add_flag("--json", a->json, "one JSON object at the end, and no stories");
  chaos->add_flag("--verbose", a->verbose, "prints the history of each run");
  chaos->callback([a, &exit_code] { exit_code = run(*a); });

  auto o = std::make_shared<outage_arguments>();
  auto* outage = sim->add_subcommand(
      "control-outage",
      "Under load the control host dies and stays away while one engine in ten is replaced: no "
      "request may fail");
  outage->add_option("--seed", o->run.seed, "the first seed")->capture_default_str();
  outage->add_option("--runs", o->runs, "how many seeds, counting up")->capture_default_str();
  outage->add_option("--outage", o->outage_s, "seconds, of its own time")
      ->capture_default_str()
      ->check(CLI::Range(outage_min_s, outage_max_s));
  outage->add_option("--rate", o->run.requests_per_second, "requests a second")
      ->capture_default_str()
      ->check(CLI::Range(std::uint32_t{1}, rate_max));
  outage->add_flag("--gateway-restarts", o->run.gateway_restarts,
                   "a gateway that knows no assignment starts in the outage");
  outage->add_option("--planted", o->planted, "puts a bug in, which must be found");
  outage->add_flag("--verbose", o->verbose, "prints the history of each run");
  outage->callback([o, &exit_code] { exit_code = run(*o); });
}

}  // namespace troupe::apps
