#include "actors/drain/drain_run.hpp"

#include <catch2/catch.hpp>

using namespace troupe;
using namespace troupe::drain;
using namespace std::chrono_literals;
using phase = msg::DrainPhase;
using names = std::vector<std::string>;

namespace {

directory::snapshot cluster() {
  directory::snapshot all;
  auto add = [&](const std::string& name, msg::Role role, const std::string& pool,
                 const std::string& host) {
    auto& e = all[name];
    e.name = name;
    e.role = role;
    e.pool = pool;
    e.host = host;
  };
  add("prefill/p/h0.0", msg::Role::PREFILL, "p", "h0");
  add("decode/d/h1.0", msg::Role::DECODE, "d", "h1");
  add("decode/d/h0.0", msg::Role::DECODE, "d", "h0");
  add("launcher/d/h0.0", msg::Role::LAUNCHER, "", "h0");
  add("requests/h0", msg::Role::REQUESTS, "", "h0");
  return all;
}

engine_progress said(phase p, bool over = false, std::uint32_t jobs = 0) {
  engine_progress e;
  e.phase = p;
  e.over = over;
  e.jobs_left = jobs;
  return e;
}

const drain_run::time_point t0{1h};

}  // namespace

TEST_CASE("a target means engines, and nothing else of its host") {
  const auto all = cluster();
  CHECK(engines_of(all, {target::kind::host, "h0"}) == names{"decode/d/h0.0", "prefill/p/h0.0"});
  CHECK(engines_of(all, {target::kind::pool, "d"}) == names{"decode/d/h0.0", "decode/d/h1.0"});
  CHECK(engines_of(all, {target::kind::engine, "decode/d/h1.0"}) == names{"decode/d/h1.0"});
  CHECK(engines_of(all, {target::kind::engine, "launcher/d/h0.0"}).empty());
  CHECK(engines_of(all, {target::kind::pool, ""}).empty());
  CHECK(launcher_of("decode/d/h1.0") == "launcher/d/h1.0");
}

TEST_CASE("all at once, each once") {
  drain_run r({"a", "b"}, {});
  CHECK(r.next(t0) == names{"a", "b"});
  CHECK(r.next(t0).empty());
  r.heard("a", said(phase::DRAINED, true));
  CHECK_FALSE(r.over());
  r.heard("b", said(phase::DRAINING, false, 4));
  CHECK(r.engines()[1].jobs_left == 4);
  r.heard("c", said(phase::DRAINED, true));  // nobody asked
  r.heard("b", said(phase::STOPPED, true));
  CHECK(r.over());
}

TEST_CASE("one after another: the next follows when the one before serves") {
  drain_run r({"a", "b", "c"}, {1});
  CHECK(r.next(t0) == names{"a"});
  r.heard("a", said(phase::RESTARTING));
  CHECK(r.next(t0).empty());
  r.heard("a", said(phase::SERVING, true));
  CHECK(r.next(t0) == names{"b"});
  SECTION("one that fails ends a rolling order: the others are left as they are") {
    auto bad = said(phase::REFUSED, true);
    bad.failure = "no memory";
    r.heard("b", bad);
    CHECK(r.over());
    CHECK(r.next(t0).empty());
    CHECK(r.engines()[1].failure == "no memory");
    CHECK(r.engines()[2].failure == "not begun, since b failed");
    CHECK_FALSE(r.engines()[2].ordered);
  }
  SECTION("its late word changes nothing") {
    r.heard("b", said(phase::SERVING, true));
    r.heard("b", said(phase::REFUSED, true));
    CHECK(r.engines()[1].failure.empty());
  }
}

TEST_CASE("launchers that are silent, gone or never done are given up") {
  drain_run r({"a", "b", "c"}, {0, 5s, 60s});
  (void)r.next(t0);
  r.heard("a", said(phase::DRAINING, false, 1));
  CHECK_FALSE(r.tick(t0 + 4s));
  CHECK(r.tick(t0 + 5s));  // b and c
  CHECK(r.engines()[1].over);
  CHECK_FALSE(r.engines()[0].over);
  CHECK(r.tick(t0 + 60s));
  CHECK_THAT(r.engines()[0].failure, Catch::Contains("60000 ms"));
  CHECK(r.over());

  drain_run gone({"a"}, {});
  (void)gone.next(t0);
  gone.lost("a");
  CHECK(gone.over());
  CHECK(gone.engines()[0].failure == "it left the directory");
}
