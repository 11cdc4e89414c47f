#include "tools/bench/admission/measure.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace troupe::bench {

bool promised(const std::string& what, const std::string& seen, const std::string& bar,
              bool holds) {
  fmt::print("{:<6} {}: {} (bar: {})\n", holds ? "holds" : "FAILS", what, seen, bar);
  return holds;
}

}  // namespace troupe::bench

/// Whether admission keeps what it promises: fairness, limits over gateways, Retry-After.
/// Production's policies on a fake clock; the same seeds give the same figures. Status 1 if
/// something does not hold.
int main(int argc, char** argv) {
  using namespace troupe::bench;
  CLI::App app{"Measures what admission promises, with production's policies on a fake clock."};
  app.require_subcommand(0, 1);
  seeds fair{1, 20};
  limits_setup limits;
  limits.by = {1, 5};
  retry_setup retry;
  retry.by = {1, 3};
  auto add = [&](const char* name, const char* about, seeds& by) {
    auto* c = app.add_subcommand(name, about);
    c->add_option("--seed", by.first, "the first one")->capture_default_str();
    c->add_option("--seeds", by.count, "how many")->capture_default_str();
    return c;
  };
  auto* fairness = add("fairness", "the gap in service of two backlogged tenants", fair);
  auto* cut = add("limits", "a tenant at four gateways, one of them cut off", limits.by);
  cut->add_option("--mu-per-minute", limits.per_minute)->capture_default_str();
  cut->add_option("--burst-mu", limits.burst)->capture_default_str();
  cut->add_option("--isolated-mu-per-minute", limits.floor_per_minute)->capture_default_str();
  cut->add_option("--request-mu", limits.request)->capture_default_str();
  auto* again = add("retry-after", "what refusals promise, under steady overload", retry.by);
  again->add_option("--seconds", retry.measured_s)->capture_default_str();
  again->add_option("--engines", retry.engines)->capture_default_str();
  again->add_option("--gateways", retry.gateways)->capture_default_str();
  auto* all = app.add_subcommand("all", "the three of them; so it is without a subcommand");
  CLI11_PARSE(app, argc, argv);
  const bool each = *all || app.get_subcommands().empty();
  bool holds = true;
  if (each || *fairness) holds = bench_fairness(fair) && holds;
  if (each || *cut) holds = bench_limits(limits) && holds;
  if (each || *again) holds = bench_retry_after(retry) && holds;
  return holds ? 0 : 1;
}
