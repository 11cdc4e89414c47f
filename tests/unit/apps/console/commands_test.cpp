#include "apps/console/commands.hpp"

#include <catch2/catch.hpp>

using namespace troupe;
using namespace troupe::apps::console;
using names = std::vector<std::string>;

namespace {

const names hosts{"h0", "h1", "both"};
const names pools{"prefill", "both"};

}  // namespace

TEST_CASE("a line ends in a command, then in hosts or pools, or in options") {
  const auto at = [](const char* line) { return completions(line, hosts, pools); };
  CHECK(at("re") == names{"requests", "request", "restart", "reload"});
  CHECK(at("tr") == names{"tree"});
  CHECK(at("tree") == names{"tree"});
  CHECK(at("tree ") == hosts);
  CHECK(at("tree h") == names{"h0", "h1"});
  CHECK(at("tree h0 ") == names{});
  CHECK(at("drain p") == names{"prefill"});
  CHECK(at("undrain h") == names{"h0", "h1"});
  CHECK(at("books --") == names{"--check", "--zero"});
  CHECK(at("books --check --z") == names{"--zero"});
  CHECK(at("request ") == names{});
  CHECK(at("reload ") == names{});
  CHECK(at("nonsense") == names{});
  CHECK(at("").size() == commands().size());
}

TEST_CASE("lines are words by blanks") {
  CHECK(words_of("") == names{});
  CHECK(words_of("  drain\th0  --stop ") == names{"drain", "h0", "--stop"});
}

TEST_CASE("an order is about a host, a pool or an engine") {
  using kind = msg::ConsoleOrder::TargetKind;
  const auto is = [](const char* word, kind k, const char* name) {
    INFO(word);
    const auto t = target_of(word, hosts, pools);
    REQUIRE(t);
    CHECK(t->kind == k);
    CHECK(t->name == name);
  };
  is("h0", kind::HOST, "h0");
  is("prefill", kind::POOL, "prefill");
  is("decode/llama/h2.0", kind::ENGINE, "decode/llama/h2.0");
  is("host:both", kind::HOST, "both");
  is("pool:both", kind::POOL, "both");
  is("host:h1", kind::HOST, "h1");
  const auto code = [](const char* word) {
    INFO(word);
    const auto t = target_of(word, hosts, pools);
    REQUIRE_FALSE(t);
    return t.error().code;
  };
  CHECK(code("both") == "ambiguous_target");
  CHECK(code("nobody") == "no_such_target");
  CHECK(code("host:prefill") == "no_such_target");
  CHECK(code("rack:h0") == "no_such_target");
  CHECK(code("") == "no_such_target");
}

TEST_CASE("an order's options are those of its command") {
  const auto is = [](const char* command, const char* line) {
    return read_order(command, words_of(line), hosts, pools);
  };
  const auto o = is("drain", "h0 --within 5s --move-now --stop");
  REQUIRE(o);
  CHECK(o->target.name == "h0");
  CHECK(o->within == std::chrono::seconds{5});
  CHECK(o->move_now);
  CHECK(o->stop);
  CHECK(is("restart", "prefill --within 5s --move-now --all-at-once")->all_at_once);
  CHECK(is("undrain", "h0"));

  const auto both = is("restart", "prefill --stop");
  REQUIRE_FALSE(both);
  CHECK_THAT(both.error().message, Catch::Contains("contradict") && Catch::Contains("drain"));
  const auto refused = [&](const char* command, const char* line) {
    const auto x = is(command, line);
    INFO(command << " " << line);
    REQUIRE_FALSE(x);
    CHECK(x.error().code == "usage");
  };
  refused("drain", "h0 --all-at-once");
  refused("undrain", "--stop h0");
  refused("undrain", "h0 --within 5s");
  refused("restart", "h0 h1");
  refused("restart", "--within");
}
