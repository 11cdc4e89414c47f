// Each checker is proved by a bug that it must find, within a number of seeds.

#include "apps/sim/report.hpp"
#include "messages/job_codes.hpp"

#include <catch2/catch.hpp>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

using namespace troupe;
using namespace troupe::sim;

namespace {

constexpr std::uint64_t seeds_max = 500;

/// The bug, and the checkers of which one must find it.
const std::pair<planted::bug, std::set<std::string>> expected_finders[] = {
    {planted::bug::leak_lease, {"leases"}},
    {planted::bug::leak_ticket, {"hubs"}},
    {planted::bug::leak_job, {"jobs"}},
    {planted::bug::keep_early_open, {"hand-overs"}},
    {planted::bug::leak_buffer, {"buffers"}},
    {planted::bug::leak_kv, {"kv"}},
    {planted::bug::free_used_kv, {"kv", "attempts"}},
    {planted::bug::adopt_early, {"attempts"}},
    {planted::bug::skip_attempt_check, {"attempts", "answers", "failures"}},
    {planted::bug::drop_down, {"readiness"}},
    {planted::bug::forget_gone, {"failures"}},
    {planted::bug::forget_renewal, {"attempts"}},
    {planted::bug::forget_deadline, {"endings"}},
    {planted::bug::lose_last_batch, {"attempts"}},
    {planted::bug::duplicate_token, {"answers"}},
    {planted::bug::answer_twice, {"endings"}},
    {planted::bug::kill_progressing, {"kills"}},
    {planted::bug::no_restart_limit, {"restarts"}},
    {planted::bug::forget_stall, {"failures"}},
    {planted::bug::keep_assignment, {"assignments"}},
};

/// Bugs that production itself mends: no checker may find them.
const planted::bug mended[] = {planted::bug::forget_job};
constexpr std::uint64_t mended_seeds = 20;

/// The first seed at which one of `finders` says something; 0: none.
std::uint64_t found_at(planted::bug bug, const std::set<std::string>& finders) {
  run_options o;
  o.planted = bug;
  o.requests = 60;
  for (o.seed = 1; o.seed <= seeds_max; ++o.seed) {
    const auto r = run_chaos(o);
    if (std::any_of(r.findings.begin(), r.findings.end(),
                    [&](const auto& f) { return finders.contains(f.checker); }))
      return o.seed;
  }
  return 0;
}

std::vector<std::string> texts(const std::vector<finding>& findings) {
  std::vector<std::string> all;
  for (const auto& f : findings) all.push_back(f.checker + " " + f.subject + ": " + f.text);
  return all;
}

}  // namespace

TEST_CASE("every planted bug is found by the checker that is there for it") {
  spdlog::set_level(spdlog::level::off);
  CHECK(std::size(expected_finders) + std::size(mended) + 1 == planted::bugs);
  for (const auto& [bug, finders] : expected_finders) {
    const auto seed = found_at(bug, finders);
    INFO(to_string(bug));
    CHECK(seed > 0);
    UNSCOPED_INFO("seed " << seed);
  }
  CHECK(planted::present == planted::bug::none);
}

TEST_CASE("bugs that are mended as they happen cost no client an answer, and no engine its life") {
  spdlog::set_level(spdlog::level::off);
  for (const auto bug : mended) {
    run_options o;
    o.planted = bug;
    o.requests = 60;
    std::uint64_t stalled = 0;
    for (o.seed = 1; o.seed <= mended_seeds; ++o.seed) {
      const auto r = run_chaos(o);
      INFO(replay_command(o));
      CHECK(std::vector<std::string>{} == texts(r.findings));
      if (const auto i = r.attempts.find(msg::job_stalled); i != r.attempts.end())
        stalled += i->second;
    }
    INFO(to_string(bug));
    CHECK(stalled > 0);  // it did happen
  }
}

TEST_CASE("the names of planted bugs lead back to them") {
  for (std::uint8_t i = 0; i < planted::bugs; ++i) {
    const auto bug = static_cast<planted::bug>(i);
    CHECK(parse_bug(to_string(bug)) == bug);
  }
  CHECK(parse_bug("no such bug") == planted::bug::none);
}
