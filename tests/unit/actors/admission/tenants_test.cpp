#include "actors/admission/tenants.hpp"

#include "config/parse.hpp"

#include <catch2/catch.hpp>

using namespace troupe;
using namespace troupe::admission;

namespace {

// How it can fail: a setting of the cluster file that reaches nobody, or another field; tenants
// that share prefixes without having been told to.

config::cluster cluster_of(const std::string& tenants) {
  auto loaded = config::parse(
      "[cluster]\nid = 't'\n" + tenants +
          "[[host]]\nname = 'h0'\naddress = '127.0.0.1'\nport = 7100\n"
          "[[host]]\nname = 'h1'\naddress = '127.0.0.2'\nport = 7100\n"
          "[[model]]\nname = 'm'\n"
          "[[pool]]\nname = 'p'\nmodel = 'm'\nhosts = ['h0']\nengine = 'simulated'\n"
          "[[gateway]]\nhost = 'h0'\nport = 8080\n[[gateway]]\nhost = 'h1'\nport = 8081\n"
          "[[router]]\nhost = 'h0'\n",
      "c.toml");
  for (const auto& p : loaded.problems) UNSCOPED_INFO(to_string(p));
  REQUIRE(loaded);
  return *std::move(loaded.value);
}

std::string tenant(const std::string& name, const std::string& more, const std::string& limit) {
  return "[[tenant]]\nname = '" + name + "'\nkeys = ['" + to_hex(hash_key("key of " + name)) +
         "']\nmodels = ['m']\n" + more + "[[tenant.limit]]\nmodel = 'm'\n" + limit;
}

}  // namespace

TEST_CASE("no tenants: no keys, no limits", "[admission]") {
  const auto c = cluster_of("");
  CHECK(keys_of(c) == nullptr);
  CHECK(limits_of(c).empty());
}

TEST_CASE("each setting of a tenant gets where it acts", "[admission]") {
  const auto c = cluster_of(
      "operator_keys = ['" + to_hex(hash_key("op")) + "']\n" +
      tenant("a", "",
             "guaranteed_mu_per_minute = 100\nburst_mu = 7\nisolated_mu_per_minute = 3\n"
             "best_effort_weight = 0.5\nconcurrency_max = 9\npriority = 4\nwait_max = "
             "'3s'\n") +
      tenant("b", "share_prefixes = true\n", "best_effort_weight = 1\n") +
      tenant("c", "share_prefixes = true\n", "best_effort_weight = 1\n"));
  const auto all = limits_of(c);
  REQUIRE(all.size() == 3);
  CHECK(all[0].tenant == "a");
  CHECK(all[0].model == "m");
  CHECK(all[0].guaranteed_per_minute == 100);
  CHECK(all[0].burst == 7);
  CHECK(all[0].floor_per_minute == 3);
  CHECK(all[0].best_effort_weight == 0.5);
  CHECK(all[0].open_max == 9);
  CHECK(all[0].priority == 4);
  CHECK(all[0].wait_max == std::chrono::seconds{3});

  const auto keys = keys_of(c);
  REQUIRE(keys);
  const auto *a = keys->find("key of a"), *b = keys->find("key of b"), *d = keys->find("key of c");
  REQUIRE((a && b && d && keys->find("op")));
  CHECK(keys->find("op")->tenant.empty());
  CHECK_FALSE(keys->find("op")->may_use("m"));
  CHECK(a->may_use("m"));
  CHECK(b->chain_key == d->chain_key);
  CHECK(b->chain_key == cluster_chain_key("t"));
  CHECK(b->prefix_scope == 0);
  CHECK(a->chain_key != b->chain_key);
  CHECK(a->prefix_scope != 0);
}
