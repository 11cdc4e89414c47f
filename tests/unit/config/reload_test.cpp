#include "config/reload.hpp"

#include "support.hpp"

#include <catch2/catch.hpp>

using namespace troupe::config;
using namespace troupe::config::testing;

namespace {

// How it can fail: a change that a running node ignores is taken for one that it has taken over; a
// tenant's change is taken for one that needs a restart.

using lines = std::vector<std::string>;

cluster of(const sample& s) {
  auto result = parse_text(s.text());
  for (const auto& p : result.problems) UNSCOPED_INFO(to_string(p));
  REQUIRE(result);
  return *std::move(result.value);
}

std::string tenant_text(const std::string& name, char hash, const std::string& limit) {
  return "[[tenant]]\nname = '" + name + "'\nkeys = ['" + std::string(64, hash) +
         "']\nmodels = ['m']\n[[tenant.limit]]\nmodel = 'm'\n" + limit + "\n";
}

}  // namespace

TEST_CASE("tenants, operators' keys and the generation need no restart, all else does",
          "[config]") {
  sample s;
  s.rest = tenant_text("a", 'a', "best_effort_weight = 1");
  const auto running = of(s);
  CHECK(sections_for_restart(running, running).empty());

  auto next = s;
  next.cluster += "generation = 7\noperator_keys = ['" + std::string(64, 'f') + "']\n";
  next.rest = tenant_text("a", 'b', "guaranteed_mu_per_minute = 7") +
              tenant_text("b", 'c', "best_effort_weight = 2\nwait_max = '1s'");
  CHECK(sections_for_restart(running, of(next)).empty());
  CHECK(sections_for_restart(of(next), running).empty());
  auto none = s;
  none.rest = "";
  CHECK(sections_for_restart(running, of(none)).empty());
  CHECK(sections_for_restart(of(none), running).empty());

  auto limits = next;
  limits.rest += "[limits]\nheaders_max = 7\n";
  CHECK(sections_for_restart(running, of(limits)) == lines{"limits"});
  auto control = next;
  control.routers += s.routers;
  CHECK(sections_for_restart(running, of(control)) == lines{"router"});
  const auto two = of(control);
  control.rest += "[control]\nhost = 'h0'\nstate = 'c.db'\n";
  CHECK(sections_for_restart(two, of(control)) == lines{"control"});
  CHECK(sections_for_restart(of(control), two) == lines{"control"});
  auto several = next;
  several.cluster = "[cluster]\nid = 'other'\n";
  several.models += "context_tokens = 4096\n";
  CHECK(sections_for_restart(running, of(several)) == lines{"cluster", "model"});
}

TEST_CASE("a file is taken over only if it is known to be newer, and opens nothing that was closed",
          "[config]") {
  // How it can fail: two files of one generation, and each host goes by another; a table that is
  // missing lets everybody in.
  sample s;
  s.rest = tenant_text("a", 'a', "best_effort_weight = 1");
  const auto running = of(s);
  const in_force now{running, 1, running.digest, true};
  const auto why = [&](const in_force& by, const sample& next) {
    std::string all;
    for (const auto& p : problems_of_reload(by, of(next))) all += to_string(p) + "\n";
    return all;
  };
  CHECK(why(now, s).empty());  // the same again
  auto changed = s;
  changed.rest = tenant_text("a", 'b', "best_effort_weight = 1");
  CHECK(why(now, changed).find("its generation is still 1: set `generation = 2`") !=
        std::string::npos);
  auto newer = changed;
  newer.cluster += "generation = 2\n";
  CHECK(why(now, newer).empty());
  const auto second = of(newer);
  CHECK(why({running, 2, second.digest, true}, s).find("generation 1 is older than 2") !=
        std::string::npos);
  auto none = newer;
  none.rest = "";
  CHECK(why(now, none).find("there is no [[tenant]]") != std::string::npos);
  CHECK(why({running, 1, running.digest, false}, none).empty());
  CHECK(problems_of_reload(now, second, second.digest).empty());
  REQUIRE(problems_of_reload(now, second, running.digest).size() == 1);
  CHECK(problems_of_reload(now, second, running.digest)[0].message.find(second.digest) !=
        std::string::npos);
  CHECK(why({running, 1, running.digest, true, reloads_max - 1}, newer).empty());
  CHECK(why({running, 1, running.digest, true, reloads_max}, newer).find("restart it") !=
        std::string::npos);
}
