#include "config/effective.hpp"

#include "config/schema.hpp"
#include "support.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <set>

using namespace troupe::config;
using namespace troupe::config::testing;

namespace {

cluster good(const std::string& text) {
  auto result = parse_text(text);
  for (const auto& p : result.problems) UNSCOPED_INFO(to_string(p));
  REQUIRE(result);
  return *std::move(result.value);
}

}  // namespace

TEST_CASE("the effective configuration is a cluster file that means the same", "[config]") {
  for (const auto& entry : std::filesystem::directory_iterator{TROUPE_EXAMPLES_DIR}) {
    INFO(entry.path());
    const auto first = load(entry.path().string(), fake_environment());
    REQUIRE(first);
    for (const bool with_origins : {false, true}) {
      const auto printed = print_effective(*first.value, with_origins);
      const auto second = parse(printed, first.value->file, fake_environment());
      for (const auto& p : second.problems) UNSCOPED_INFO(to_string(p));
      REQUIRE(second);
      CHECK(second.value->digest == first.value->digest);
      CHECK(second.value->section_digests == first.value->section_digests);
    }
  }
}

TEST_CASE("tenants are part of it, and what is not set stays so", "[config]") {
  sample s;
  s.rest = "[[tenant]]\nname = 'a'\nkeys = ['" + std::string(64, 'a') +
           "']\nmodels = ['m']\n"
           "[[tenant.limit]]\nmodel = 'm'\nguaranteed_mu_per_minute = 60\n"
           "[[tenant]]\nname = 'b'\nkeys = ['" +
           std::string(64, 'b') +
           "']\nmodels = ['m']\nshare_prefixes = true\n"
           "[[tenant.limit]]\nmodel = 'm'\nbest_effort_weight = 2.5\nwait_max = '0ms'\n";
  const auto first = good(s.text());
  const auto printed = print_effective(first, true);
  CHECK(printed.find("burst_mu = 3 ") != std::string::npos);
  CHECK(printed.find("# guaranteed_mu_per_minute is not set\n") != std::string::npos);
  const auto second = good(printed);
  CHECK(second.digest == first.digest);
  CHECK(second.section_digests == first.section_digests);
  CHECK(first.section_digests.contains("tenant"));
  CHECK(print_reference().find("[[tenant.limit]]\n  model (required)") != std::string::npos);
  CHECK(print_reference().find("best_effort_weight (not set by default)") != std::string::npos);
}

TEST_CASE("the control host and all routers are part of it", "[config]") {
  sample s;
  s.routers += "[[router]]\nhost = 'h0'\ndecode_prefills_tokens_max = 64\n[control]\nhost = "
               "'h0'\nstate = 'c.db'\n";
  const auto first = good(s.text());
  const auto second = good(print_effective(first, true));
  REQUIRE(second.control);
  CHECK(second.control->state == first.control->state);
  CHECK(second.routers.size() == 2);
  CHECK(second.digest == first.digest);
  CHECK(first.section_digests.contains("control"));
  auto other = first;
  other.control->churn_max = 0.5;
  set_digests(other);
  CHECK(other.digest != first.digest);
  CHECK(print_effective(first, false).find("churn_max = 0.09\n") != std::string::npos);
}

TEST_CASE("every value names where it came from", "[config]") {
  sample s;
  s.rest = "[limits]\nidle_timeout = '120s'\n";
  const auto printed = print_effective(good(s.text()), true);
  const auto origin_of = [&](const std::string& assignment) {
    const auto start = printed.find("\n" + assignment + " ");
    REQUIRE(start != std::string::npos);
    const auto comment = printed.find('#', start);
    return printed.substr(comment, printed.find('\n', comment) - comment);
  };
  CHECK(origin_of("idle_timeout = \"2m\"") == "# /etc/troupe/c.toml:20:16");
  CHECK(origin_of("body_timeout = \"1m\"") == "# default");
  CHECK(origin_of("hosts = [\"h0\"]") == "# /etc/troupe/c.toml:13:9");
}

TEST_CASE("the digest follows meaning, not spelling", "[config]") {
  sample s;
  const auto base = good(s.text());
  CHECK(base.digest.size() == 32);
  CHECK(base.section_digests.size() == 9);

  const auto same = [&](const std::string& text) { return good(text).digest == base.digest; };
  CHECK(same("# a comment\n\n" + s.text()));
  CHECK(same(s.text() + "[limits]\nbody_timeout = '1m'\n"));
  CHECK(same(s.text() + "[limits]\nbody_timeout = '60s'\nprompt_bytes_max = 8388608\n"));
  CHECK_FALSE(same(s.text() + "[limits]\nbody_timeout = '61s'\n"));

  // Different homes, same file.
  sample home;
  home.models = "[[model]]\nname = 'm'\npath = '~/m.gguf'\n";
  const auto mine = parse(home.text(), "a.toml", fake_environment({{"HOME", "/home/me"}}));
  const auto yours = parse(home.text(), "/b.toml", fake_environment({{"HOME", "/home/you"}}));
  REQUIRE(mine);
  REQUIRE(yours);
  CHECK(mine.value->models[0].path != yours.value->models[0].path);
  CHECK(mine.value->digest == yours.value->digest);
}

TEST_CASE("the section that differs can be told", "[config]") {
  sample s;
  const auto base = good(s.text());
  s.pools += "slots = 3\n";
  s.rest = "[health]\nlease = '4s'\n";
  const auto other = good(s.text());
  std::set<std::string> differ;
  for (const auto& [name, digest] : base.section_digests)
    if (other.section_digests.at(name) != digest) differ.insert(name);
  CHECK(differ == std::set<std::string>{"pool", "health"});
}

// A default that its own rule refuses could not be written down; a key without a meaning is not
// documented.
TEST_CASE("the schema agrees with itself", "[config]") {
  cluster c;
  c.hosts.resize(1);
  c.models.resize(1);
  c.pools.resize(1);
  c.pools[0].engine = engine_kind::simulated;
  c.gateways.resize(1);
  c.routers.resize(1);
  c.control.emplace();
  for (const auto& section : bind_all(c)) {
    std::set<std::string_view> names;
    for (const auto& f : section.fields) {
      INFO(section.path << "." << f.name);
      CHECK(names.insert(f.name).second);
      CHECK(f.doc.size() > 5);
      CHECK_FALSE(describe(f.accepts).empty());
      if (f.accepts.required) continue;
      const auto within = [&](double value) {
        return value >= static_cast<double>(f.accepts.min) &&
               value <= static_cast<double>(f.accepts.max);
      };
      if (const auto* p = std::get_if<std::uint32_t*>(&f.at)) CHECK(within(**p));
      if (const auto* p = std::get_if<std::uint64_t*>(&f.at))
        CHECK(within(static_cast<double>(**p)));
      if (const auto* p = std::get_if<double*>(&f.at)) CHECK(within(**p));
      if (const auto* p = std::get_if<milliseconds*>(&f.at))
        CHECK(within(static_cast<double>((*p)->count())));
      if (f.accepts.type == value_type::choice)
        if (const auto* p = std::get_if<std::string*>(&f.at))
          CHECK(std::find(f.accepts.choices.begin(), f.accepts.choices.end(), **p) !=
                f.accepts.choices.end());
    }
  }
}

TEST_CASE("words of enumerations stand in their order", "[config]") {
  cluster c;
  c.pools.resize(1);
  for (const auto& f : bind(c.pools[0])) {
    if (std::holds_alternative<pool_role*>(f.at)) {
      REQUIRE(f.accepts.choices.size() == 3);
      for (std::size_t i = 0; i < 3; ++i)
        CHECK(f.accepts.choices[i] == to_string(static_cast<pool_role>(i)));
    }
    if (std::holds_alternative<engine_kind*>(f.at)) {
      REQUIRE(f.accepts.choices.size() == 2);
      for (std::size_t i = 0; i < 2; ++i)
        CHECK(f.accepts.choices[i] == to_string(static_cast<engine_kind>(i)));
    }
  }
}

TEST_CASE("the reference names every key", "[config]") {
  const auto reference = print_reference();
  cluster c;
  c.pools.resize(1);
  c.control.emplace();
  for (const auto& section : bind_all(c))
    for (const auto& f : section.fields) {
      INFO(f.name);
      CHECK(reference.find("  " + std::string{f.name} + " (") != std::string::npos);
    }
  CHECK(reference.find("[pool.simulation]") != std::string::npos);
}
