#include "apps/key/key_command.hpp"

#include "actors/admission/key_ring.hpp"
#include "config/parse.hpp"
#include "messages/base/exit_codes.hpp"

#include <catch2/catch.hpp>

#include <sstream>

using namespace troupe;
using namespace troupe::apps;

namespace {

// How it can fail: a hash that is another key's, or that the cluster file doesn't take; a key that
// is printed twice, or made twice.

std::string line_after(const std::string& text, const std::string& mark) {
  const auto at = text.find(mark);
  REQUIRE(at != std::string::npos);
  const auto begin = text.find_first_not_of(" \n", at + mark.size());
  return text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace

TEST_CASE("a new key is shown once, with the lines that let it in", "[apps]") {
  std::ostringstream out, err;
  REQUIRE(create_key("acme", out, err) == exit_ok);
  CHECK(err.str().empty());
  const auto key = line_after(out.str(), "shown only now:");
  CHECK(key.starts_with("tr-"));
  CHECK(out.str().find(key) == out.str().rfind(key));

  const auto lines = out.str().substr(out.str().find("  [[tenant]]"));
  const auto file = config::parse(
      "[cluster]\nid = 't'\n"
      "[[host]]\nname = 'h0'\naddress = '127.0.0.1'\nport = 7100\n"
      "[[model]]\nname = 'm'\n"
      "[[pool]]\nname = 'p'\nmodel = 'm'\nhosts = ['h0']\nengine = 'simulated'\n"
      "[[gateway]]\nhost = 'h0'\nport = 8080\n[[router]]\nhost = 'h0'\n" +
          lines + "models = ['m']\n[[tenant.limit]]\nmodel = 'm'\nbest_effort_weight = 1\n",
      "c.toml");
  for (const auto& p : file.problems) UNSCOPED_INFO(to_string(p));
  REQUIRE(file);
  const auto& tenant = file.value->tenants.at(0);
  CHECK(tenant.name == "acme");
  const admission::key_ring ring{{{{tenant.name, tenant.models, 1, 1}, tenant.keys}}};
  REQUIRE(ring.find(key) != nullptr);
  CHECK(ring.find(key)->tenant == "acme");

  std::ostringstream again;
  REQUIRE(create_key("acme", again, err) == exit_ok);
  CHECK(again.str() != out.str());
}

TEST_CASE("a key is for somebody with a name", "[apps]") {
  std::ostringstream out, err;
  CHECK(create_key("two words", out, err) == exit_usage);
  CHECK(out.str().empty());
  CHECK(err.str().find("'two words' is no name") != std::string::npos);
}
