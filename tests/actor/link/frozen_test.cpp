// Links between processes of which one is frozen (SIGSTOP) and goes on later, or is killed: over a
// connection, and over BASP's indirect route through a third process, which carries no DOWN.

#include "tests/actor/link/basp.hpp"
#include "tests/support/helper_process.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace troupe;
using namespace troupe::link;
using namespace troupe::link::contract;
using namespace std::chrono_literals;

namespace {

/// A helper that says its port first.
struct helper : test::helper_process {
  explicit helper(const std::vector<std::string>& arguments)
      : helper_process(TROUPE_LINK_PEER, arguments) {}
  std::uint16_t port() {
    const auto said = line(patience);
    REQUIRE(said.rfind("port ", 0) == 0);
    return static_cast<std::uint16_t>(std::stoi(said.substr(5)));
  }
};

/// Host a, and what host b says to it.
struct host_a : basp_process {
  host_a() : basp_process("a", 1) {}

  bool is_up(std::size_t number) {
    return wait_until([&] { return at.heard->ups.size() >= number; }, patience);
  }
  bool is_down() {
    return wait_until([&] { return at.heard->downs.size() == 1; }, noticed_within + busy_machine);
  }
  bool hears(const std::string& what) {
    return wait_until(
        [&] {
          const auto all = sink.texts();
          return std::find(all.begin(), all.end(), what) != all.end();
        },
        patience);
  }
  void say(const std::string& what) {
    caf::anon_send(at.heard->ups.all().back().link,
                   msg::make_parcel({"peer", 0}, {"sink", 0}, text(what)));
  }
  /// By the exchange there; the link is there when this returns.
  void meet(std::uint16_t exchange_port, std::size_t number) {
    for (int i = 0; i < 5; ++i) {
      if (const auto b = ask_exchange(system, exchange_port, "b"))
        at.actors.push_back(spawn_link(system, at.shared(), b, at.context.owner));
      if (wait_until([&] { return at.heard->ups.size() >= number; }, 4s)) return;
    }
    FAIL("no link");
  }

  /// What host b says through its first link has no effect here since there were so many words, and
  /// what it says through the second one has.
  void check_that_only_the_new_link_speaks(std::size_t words) {
    CHECK(hears("2"));
    auto all = sink.texts();
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(words));
    CHECK(std::count(all.begin(), all.end(), "1") == 0);
  }

  inbox sink = at.bind("sink", 0);
};

/// What was said to host b while it was frozen comes to nobody, and what is said afterwards does.
void check_that_nothing_late_came(helper& b) {
  for (;;) {
    const auto said = b.line(patience);
    REQUIRE(!said.empty());
    CHECK(said != "got while it is frozen");
    if (said == "got afterwards") return;
  }
}

/// Hosts a and b with one between them, linked over BASP's indirect route.
struct line {
  line() {
    REQUIRE(b.until("offered", patience));
    a.meet(port, 1);
    REQUIRE(a.hears("1"));
  }
  /// By a new link: BASP has forgotten the old handles. `words`: what a had heard before.
  void check_that_it_comes_back(std::size_t words) {
    b.tell("offer");
    REQUIRE(b.until("offered", patience));
    a.meet(port, 2);
    a.check_that_only_the_new_link_speaks(words);
    a.say("afterwards");
    check_that_nothing_late_came(b);
  }

  helper middle{{"middle"}};
  const std::uint16_t port = middle.port();
  helper b{{"end", std::to_string(port)}};
  host_a a;
};

}  // namespace

TEST_CASE("a frozen peer is noticed; when it goes on, nothing of the old link has an effect") {
  host_a a;
  helper b{{"direct"}};
  a.at.actors.push_back(spawn_connector(a.system, a.at.shared(), "b", "127.0.0.1", b.port()));
  REQUIRE(a.is_up(1));
  REQUIRE(a.hears("1"));
  a.say("before");
  REQUIRE(b.until("got before", patience));

  b.stop();
  a.say("while it is frozen");
  REQUIRE(a.is_down());
  const auto words = a.sink.got->size();
  b.go_on();
  REQUIRE(a.is_up(2));
  a.check_that_only_the_new_link_speaks(words);
  a.say("afterwards");
  check_that_nothing_late_came(b);
}

TEST_CASE_METHOD(line, "over an indirect route, a frozen peer is noticed by the link's own pings") {

  b.stop();
  a.say("while it is frozen");
  REQUIRE(a.is_down());
  CHECK(a.at.heard->downs.all()[0].reason.find("no echo") != std::string::npos);
  const auto words = a.sink.got->size();
  b.go_on();
  check_that_it_comes_back(words);
}

TEST_CASE_METHOD(
    line,
    "over an indirect route, a process in the middle that is frozen is noticed at both ends") {
  REQUIRE(b.until("up 1", patience));

  middle.stop();
  a.say("while it is frozen");
  REQUIRE(a.is_down());
  CHECK(b.line(noticed_within).rfind("down ", 0) == 0);
  const auto words = a.sink.got->size();
  middle.go_on();
  check_that_it_comes_back(words);
}

TEST_CASE_METHOD(
    line, "over an indirect route, a peer that is killed is noticed by the link's own pings") {
  b.kill();
  CHECK(a.is_down());
}
