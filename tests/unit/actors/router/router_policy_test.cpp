#include "tests/unit/actors/router/shard.hpp"

#include <catch2/catch.hpp>

#include <limits>
#include <random>
#include <set>
#include <string>
#include <variant>
#include <vector>

using namespace troupe;
using namespace troupe::router;
using test::shard;
using test::worker;

namespace {

constexpr auto first_lease = test::first_lease;

const auto both = msg::Role::BOTH;
const auto prefill = msg::Role::PREFILL;
const auto decode = msg::Role::DECODE;

}  // namespace

TEST_CASE("the worker with the least outstanding work is chosen, and its lease counts at once") {
  shard s{{worker("both/p/a1.0", both, "a1"), worker("both/p/a2.0", both, "a2")}};
  std::map<std::string, int> chosen;
  for (int i = 0; i < 10; ++i) ++chosen[s.choose().decode.name];
  CHECK(chosen["both/p/a1.0"] == 5);
  CHECK(chosen["both/p/a2.0"] == 5);
  CHECK(s.view("both/p/a1.0").leases == 5);
  CHECK(s.view("both/p/a1.0").leased_tokens == 5 * (1'000 + 100));
}

TEST_CASE("what a worker reports as queued counts where it is more than what was leased here") {
  shard s{{worker("both/p/a1.0", both, "a1"), worker("both/p/a2.0", both, "a2")}};
  worker_report r;
  r.queued_tokens = 50'000;
  s.policy.report("both/p/a1.0", 7, r);
  for (int i = 0; i < 5; ++i) CHECK(s.choose().decode.name == "both/p/a2.0");
}

TEST_CASE("prompts of others that wait for a worker's tokenisers are load, too") {
  shard s{{worker("both/p/a1.0", both, "a1"), worker("both/p/a2.0", both, "a2")}};
  worker_report r;
  r.preparing = 30;
  s.policy.report("both/p/a1.0", 7, r);
  s.policy.report("both/p/a2.0", 7, {});
  for (int i = 0; i < 5; ++i) CHECK(s.choose().decode.name == "both/p/a2.0");
}

TEST_CASE(
    "a report of an old generation, of an unknown worker or with nonsense in it changes nothing") {
  shard s{{worker("both/p/a1.0", both, "a1")}};
  worker_report r;
  r.queued_tokens = 50'000;
  s.policy.report("both/p/a1.0", 6, r);
  s.policy.report("both/p/b1.0", 7, r);
  CHECK_FALSE(s.view("both/p/a1.0").reported);
  CHECK(s.policy.workers().size() == 1);

  for (float bad : {-1.0F, 0.0F, 1e-30F, 1e30F, std::numeric_limits<float>::quiet_NaN(),
                    std::numeric_limits<float>::infinity()}) {
    r.bytes_per_token = bad;
    s.policy.report("both/p/a1.0", 7, r);
    const auto before = s.view("both/p/a1.0").leased_tokens;
    const auto c = s.choose();
    INFO("bytes per token " << bad);
    CHECK(s.view("both/p/a1.0").leased_tokens - before == 1'100);
    s.policy.release(c.lease);
  }
}

TEST_CASE("prompts are counted in tokens by the model's measured bytes per token") {
  shard s{{worker("both/p/a1.0", both, "a1")}};
  worker_report r;
  r.bytes_per_token = 8;
  s.policy.report("both/p/a1.0", 7, r);
  s.choose();
  CHECK(s.view("both/p/a1.0").leased_tokens == 500 + 100);
}

TEST_CASE("among equals the nearest is taken: worker to client, and prefill to decode") {
  shard local{{worker("both/p/b1.0", both, "b1"), worker("both/p/a2.0", both, "a2"),
               worker("both/q/a1.0", both, "a1")}};
  CHECK(local.choose().decode.name == "both/q/a1.0");

  shard apart{{worker("prefill/p/b1.0", prefill, "b1"), worker("decode/p/a1.0", decode, "a1"),
               worker("decode/p/b1.0", decode, "b1")}};
  auto c = apart.choose();
  CHECK(c.how == plan::full);
  CHECK(c.prefill.name == "prefill/p/b1.0");
  CHECK(c.decode.name == "decode/p/b1.0");
}

TEST_CASE("less work beats a shorter way") {
  shard s{{worker("both/p/a1.0", both, "a1"), worker("both/p/b1.0", both, "b1")}};
  CHECK(s.choose().decode.name == "both/p/a1.0");
  CHECK(s.choose().decode.name == "both/p/b1.0");
}

TEST_CASE("a known prefix is work saved") {
  shard s{{worker("both/p/a1.0", both, "a1"), worker("both/p/b1.0", both, "b1")}};
  REQUIRE(s.knows("both/p/b1.0", {1, 2, 3}));
  auto q = shard::query();
  q.chain = {1, 2, 3, 4, 5, 6, 7};
  CHECK(s.choose(q).decode.name == "both/p/b1.0");
  CHECK(s.view("both/p/b1.0").leased_tokens == 1'000 - 3 * 512 / 4 + 100);

  SECTION("only from the beginning on") {
    q.chain = {9, 2, 3};
    CHECK(s.choose(q).decode.name == "both/p/a1.0");
  }
  SECTION("not where too much waits before it") {
    worker_report r;
    r.queued_tokens = 5'000;
    s.policy.report("both/p/b1.0", 7, r);
    CHECK(s.choose(q).decode.name == "both/p/a1.0");
  }
}

TEST_CASE("how the KV travels follows from what decode holds") {
  shard s{{worker("prefill/p/a1.0", prefill, "a1"), worker("decode/p/a1.0", decode, "a1")}};
  auto q = shard::query();
  q.chain = {1, 2, 3, 4, 5, 6, 7};

  SECTION("nothing: all of it") {
    auto c = s.choose(q);
    CHECK(c.how == plan::full);
    CHECK(s.view("prefill/p/a1.0").leased_tokens == 1'000);
    CHECK(s.view("decode/p/a1.0").leased_tokens == 100);
  }
  SECTION("a part: from there on") {
    REQUIRE(s.knows("decode/p/a1.0", {1, 2}));
    auto c = s.choose(q);
    CHECK(c.how == plan::from_position);
    CHECK(c.prefill.name == "prefill/p/a1.0");
  }
  SECTION("all but a little: decode computes the rest itself, without prefill") {
    REQUIRE(s.knows("decode/p/a1.0", {1, 2, 3, 4, 5, 6, 7}));
    q.prompt_bytes = 7 * 512 + 4 * 64;
    auto c = s.choose(q);
    CHECK(c.how == plan::decode_prefills);
    CHECK(c.prefill.name.empty());
    CHECK(s.view("prefill/p/a1.0").leases == 0);
    CHECK(s.view("decode/p/a1.0").leased_tokens == 64 + 100);

    q.prompt_bytes += 4;  // one token above the limit
    CHECK(s.choose(q).how == plan::from_position);
  }
}

TEST_CASE("workers that failed the request are not asked again while there are others") {
  shard s{{worker("prefill/p/a1.0", prefill, "a1"), worker("decode/p/a1.0", decode, "a1"),
           worker("decode/p/b1.0", decode, "b1")}};
  auto q = shard::query();
  q.exclude = {"decode/p/a1.0"};
  for (int i = 0; i < 5; ++i) CHECK(s.choose(q).decode.name == "decode/p/b1.0");

  // The only prefill has failed it, too: it is asked again, the failed decode is still avoided.
  q.exclude = {"decode/p/a1.0", "prefill/p/a1.0"};
  for (int i = 0; i < 5; ++i) CHECK(s.choose(q).decode.name == "decode/p/b1.0");

  q.exclude = {"decode/p/a1.0", "decode/p/b1.0", "prefill/p/a1.0"};
  CHECK(s.choose(q).prefill.name == "prefill/p/a1.0");
}

TEST_CASE("where all have failed the request, whoever did so longest ago is asked") {
  shard s{{worker("prefill/p/a1.0", prefill, "a1"), worker("decode/p/a1.0", decode, "a1"),
           worker("decode/p/b1.0", decode, "b1")}};
  auto q = shard::query();
  q.exclude = {"decode/p/a1.0", "decode/p/b1.0", "prefill/p/a1.0"};
  for (int i = 0; i < 5; ++i) CHECK(s.choose(q).decode.name == "decode/p/a1.0");
  q.exclude = {"decode/p/b1.0", "decode/p/a1.0", "prefill/p/a1.0"};
  for (int i = 0; i < 5; ++i) CHECK(s.choose(q).decode.name == "decode/p/b1.0");
}

TEST_CASE("where all engines for a half were given up, the refusal says so") {
  const auto failed = msg::EntryState::FAILED;
  const auto decode = msg::Role::DECODE;
  shard s{{worker("prefill/p/a1.0", msg::Role::PREFILL, "a1"),
           worker("decode/p/a1.0", decode, "a1", 7, failed),
           worker("decode/p/b1.0", decode, "b1", 7, failed)}};
  CHECK(s.refuse().code == engines_given_up);
  CHECK(s.refuse().http_status == 503);
  s.policy.update({{worker("decode/p/b1.0", decode, "b1", 8, msg::EntryState::LOADING)}, {}});
  CHECK(s.refuse().code == "no_ready_worker");
}

TEST_CASE("an unknown model is 404, a known one without ready workers is 503 and says why") {
  auto loading = worker("both/p/a1.0", both, "a1", 7, msg::EntryState::LOADING);
  loading.detail = "40 %";
  shard s{{loading, worker("both/p/b1.0", both, "b1", 7, msg::EntryState::DRAINING)}};
  auto q = shard::query();
  q.model = "nobody";
  CHECK(s.refuse(q).http_status == 404);
  CHECK(s.refuse(q).code == "model_not_found");

  auto r = s.refuse();
  CHECK(r.http_status == 503);
  CHECK(r.code == "no_ready_worker");
  CHECK(r.retry_after_ms > 0);
  CHECK_THAT(r.message, Catch::Contains("both/p/a1.0 is loading its model (40 %)") &&
                            Catch::Contains("both/p/b1.0 is draining"));

  q.model = "other";
  CHECK_THAT(s.refuse(q).message, Catch::Contains("none of its engines has reported"));
}

TEST_CASE("half of a pair is no route, and the refusal names the missing half") {
  shard p{{worker("prefill/p/a1.0", prefill, "a1")}};
  CHECK_THAT(p.refuse().message, Catch::Contains("a decode engine is missing"));
  shard d{{worker("decode/p/a1.0", decode, "a1")}};
  CHECK_THAT(d.refuse().message, Catch::Contains("a prefill engine is missing"));
}

TEST_CASE("entries that are no workers are never chosen") {
  auto e = worker("requests/a1", msg::Role::REQUESTS, "a1");
  shard s{{e}};
  CHECK(s.policy.workers().empty());
}

TEST_CASE("a lease is given back once, whoever asks how often") {
  shard s{{worker("prefill/p/a1.0", prefill, "a1"), worker("decode/p/a1.0", decode, "a1")}};
  auto first = s.choose(), second = s.choose();
  CHECK(first.lease != second.lease);
  s.policy.release(first.lease);
  s.policy.release(first.lease);
  s.policy.release(first_lease - 1);
  CHECK(s.policy.open_leases() == 1);
  CHECK(s.view("prefill/p/a1.0").leases == 1);
  CHECK(s.view("decode/p/a1.0").leased_tokens == 100);
  s.policy.release(second.lease);
  CHECK(s.view("prefill/p/a1.0").leased_tokens == 0);
  CHECK(s.view("decode/p/a1.0").leased_tokens == 0);
}

TEST_CASE("a prefill worker's share of a lease is given back before decode's, once") {
  shard s{{worker("prefill/p/a1.0", prefill, "a1"), worker("decode/p/a1.0", decode, "a1")}};
  auto first = s.choose(), second = s.choose();
  s.policy.release_prefill(first.lease);
  s.policy.release_prefill(first.lease);
  s.policy.release_prefill(first_lease - 1);
  CHECK(s.view("prefill/p/a1.0").leases == 1);
  CHECK(s.view("prefill/p/a1.0").leased_tokens == 1'000);
  CHECK(s.view("decode/p/a1.0").leases == 2);
  s.policy.release(first.lease);
  CHECK(s.view("prefill/p/a1.0").leases == 1);
  CHECK(s.view("decode/p/a1.0").leases == 1);
  s.policy.release(second.lease);
  s.policy.release_prefill(second.lease);
  CHECK(s.view("prefill/p/a1.0").leased_tokens == 0);
  CHECK(s.policy.open_leases() == 0);
}

TEST_CASE("a release meant for an earlier incarnation of the shard frees nothing of this one") {
  const std::vector<directory::entry> all{worker("both/p/a1.0", both, "a1")};
  router_policy before{{}, test::places(), {"m"}, 17};
  before.update({all, {}});
  const auto old = std::get<route_choice>(before.decide(shard::query())).lease;
  CHECK(old == 17);
  router_policy now{{}, test::places(), {"m"}, 1ULL << 40U};
  now.update({all, {}});
  (void)now.decide(shard::query());
  now.release(old);
  CHECK(now.open_leases() == 1);
}

TEST_CASE(
    "a restarted worker begins at zero, and leases of its earlier life are not given back to it") {
  shard s{{worker("both/p/a1.0", both, "a1")}};
  REQUIRE(s.knows("both/p/a1.0", {1}));
  auto old = s.choose();
  s.policy.update({{worker("both/p/a1.0", both, "a1", 8)}, {}});
  CHECK(s.view("both/p/a1.0").leased_tokens == 0);
  CHECK(s.view("both/p/a1.0").blocks == 0);
  auto fresh = s.choose();
  CHECK(fresh.decode.generation == 8);
  s.policy.release(old.lease);
  CHECK(s.view("both/p/a1.0").leased_tokens == 1'100);
  CHECK(s.view("both/p/a1.0").leases == 1);
  s.policy.release(fresh.lease);
  CHECK(s.view("both/p/a1.0").leased_tokens == 0);
  CHECK(s.policy.open_leases() == 0);
}

TEST_CASE("a worker that was only out of sight comes back with what is leased to it") {
  const auto w = worker("both/p/a1.0", both, "a1");
  shard s{{w}};
  auto c = s.choose();
  s.policy.update({{}, {w}});
  CHECK(s.policy.workers().empty());
  s.policy.update({{w}, {}});
  CHECK(s.view("both/p/a1.0").leased_tokens == 1'100);
  s.policy.release(c.lease);
  CHECK(s.view("both/p/a1.0").leased_tokens == 0);
  CHECK(s.view("both/p/a1.0").leases == 0);
}

TEST_CASE("a change of state keeps what is known of a worker") {
  shard s{{worker("both/p/a1.0", both, "a1")}};
  REQUIRE(s.knows("both/p/a1.0", {1, 2}));
  s.choose();
  s.policy.update({{worker("both/p/a1.0", both, "a1", 7, msg::EntryState::DRAINING)}, {}});
  CHECK(s.view("both/p/a1.0").leases == 1);
  CHECK(s.view("both/p/a1.0").blocks == 2);
  CHECK(s.refuse().http_status == 503);
}

TEST_CASE("a lost host's requests give back all that they had") {
  shard s{{worker("both/p/a1.0", both, "a1")}};
  auto far = shard::query();
  far.host = "b1";
  s.choose(far);
  s.choose(far);
  auto near = s.choose();
  s.policy.lose_host("b1");
  CHECK(s.policy.open_leases() == 1);
  CHECK(s.view("both/p/a1.0").leased_tokens == 1'100);
  s.policy.release(near.lease);
  CHECK(s.view("both/p/a1.0").leased_tokens == 0);
}

TEST_CASE("a session stays with its pair until that has clearly more to do") {
  shard s{{worker("prefill/p/a1.0", prefill, "a1"), worker("prefill/p/a2.0", prefill, "a2"),
           worker("decode/p/a1.0", decode, "a1"), worker("decode/p/a2.0", decode, "a2")}};
  auto q = shard::query(400);
  q.max_tokens = 10;
  q.session = "me";
  const auto first = s.choose(q);
  // It is the pair with the most work now; without a session it would be the last choice.
  const auto again = s.choose(q);
  CHECK(again.prefill.name == first.prefill.name);
  CHECK(again.decode.name == first.decode.name);
  CHECK_THAT(again.reason, Catch::Contains("the session's last pair"));
  auto stranger = q;
  stranger.session = "you";
  CHECK(s.choose(stranger).decode.name != first.decode.name);
  auto nobody = q;
  nobody.session.clear();
  CHECK_THAT(s.choose(nobody).reason, !Catch::Contains("session"));

  worker_report r;
  r.queued_tokens = 100'000;
  s.policy.report(first.decode.name, 7, r);
  const auto moved = s.choose(q);
  CHECK(moved.decode.name != first.decode.name);
  // It is at home there now, even when the first is idle again.
  r.queued_tokens = 0;
  s.policy.report(first.decode.name, 7, r);
  CHECK(s.choose(q).decode.name == moved.decode.name);
}

TEST_CASE("a session does not bring back a worker that failed the request or is not ready") {
  shard s{{worker("both/p/a1.0", both, "a1"), worker("both/p/a2.0", both, "a2")}};
  auto q = shard::query(400);
  q.session = "me";
  REQUIRE(s.choose(q).decode.name == "both/p/a1.0");
  SECTION("failed") { q.exclude = {"both/p/a1.0"}; }
  SECTION("not ready") {
    s.policy.update({{worker("both/p/a1.0", both, "a1", 7, msg::EntryState::DRAINING)}, {}});
  }
  SECTION("gone") { s.policy.update({{}, {worker("both/p/a1.0", both, "a1")}}); }
  CHECK(s.choose(q).decode.name == "both/p/a2.0");
}

TEST_CASE("when a hub is replaced all that its earlier life had leased is free") {
  shard s{{worker("both/p/a1.0", both, "a1")}};
  auto q = shard::query();
  q.incarnation = 5;
  auto old = s.choose(q);
  s.choose(q);
  auto far = q;
  far.host = "b1";
  s.choose(far);
  s.policy.hub_speaks("a1", 5);
  CHECK(s.policy.open_leases() == 3);

  s.policy.hub_speaks("a1", 6);
  CHECK(s.policy.open_leases() == 1);
  CHECK(s.view("both/p/a1.0").leased_tokens == 1'100);
  s.policy.release(old.lease);
  CHECK(s.view("both/p/a1.0").leased_tokens == 1'100);

  // What the old one had asked, and comes only now, is granted to nobody.
  CHECK(s.refuse(q).code == "hub_replaced");
  CHECK(s.policy.open_leases() == 1);
  q.incarnation = 6;
  s.choose(q);
  s.policy.hub_speaks("a1", 5);
  CHECK(s.policy.open_leases() == 2);
  // The first question may be the first that is heard of it.
  q.incarnation = 7;
  s.choose(q);
  CHECK(s.policy.open_leases() == 2);

  // A host that comes back with its clock set back is no earlier life.
  s.policy.lose_host("a1");
  q.incarnation = 1;
  s.choose(q);
  CHECK(s.policy.open_leases() == 2);
}

TEST_CASE("above the limit of leases requests are refused, and a release makes room") {
  router_limits limits;
  limits.leases_max = 2;
  shard s{{worker("both/p/a1.0", both, "a1")}, limits};
  auto c = s.choose();
  s.choose();
  CHECK(s.refuse().code == "router_overloaded");
  s.policy.release(c.lease);
  s.choose();
}

TEST_CASE("prefix events: in order they add and drop, a gap asks once for everything, a reset "
          "begins anew") {
  shard s{{worker("both/p/a1.0", both, "a1")}};
  const std::string name = "both/p/a1.0";
  auto blocks = [&] { return s.view(name).blocks; };
  CHECK(s.policy.prefixes(name, 7, 0, false, {1, 2, 3}, {}));
  CHECK(s.policy.prefixes(name, 7, 1, false, {4}, {1, 99}));
  CHECK(blocks() == 3);
  // In one message what is dropped comes first: a block that is in both is there.
  CHECK(s.policy.prefixes(name, 7, 2, false, {4}, {4}));
  CHECK(blocks() == 3);

  CHECK_FALSE(s.policy.prefixes(name, 7, 4, false, {5}, {}));  // 3 is missing
  CHECK(blocks() == 3);
  // What was on its way meanwhile must not ask for everything again with each message ...
  for (std::uint64_t i = 5; i < 4 + resync_again_messages; ++i)
    CHECK(s.policy.prefixes(name, 7, i, false, {i}, {}));
  CHECK(blocks() == 3);
  // ... but a lost answer must not leave the worker unheard for ever.
  CHECK_FALSE(s.policy.prefixes(name, 7, 100, false, {5}, {}));

  CHECK(s.policy.prefixes(name, 7, 200, true, {7, 8}, {}));
  CHECK(blocks() == 2);
  CHECK(s.policy.prefixes(name, 7, 201, false, {9}, {}));
  CHECK(blocks() == 3);
  CHECK_FALSE(s.policy.prefixes(name, 7, 203, false, {}, {}));
}

TEST_CASE("prefix events of another life or of strangers are ignored, without asking") {
  shard s{{worker("both/p/a1.0", both, "a1")}};
  CHECK(s.policy.prefixes("both/p/a1.0", 6, 0, false, {1}, {}));
  CHECK(s.policy.prefixes("both/p/zz.0", 7, 5, false, {1}, {}));
  CHECK(s.view("both/p/a1.0").blocks == 0);
  // The first message that is heard may be late in the worker's life.
  CHECK_FALSE(s.policy.prefixes("both/p/a1.0", 7, 41, false, {1}, {}));
}

TEST_CASE("blocks above the limit are not remembered") {
  router_limits limits;
  limits.blocks_per_worker_max = 2;
  shard s{{worker("both/p/a1.0", both, "a1")}, limits};
  CHECK(s.knows("both/p/a1.0", {1, 2, 3, 4}));
  CHECK(s.view("both/p/a1.0").blocks == 2);
}

TEST_CASE("whatever happens in whatever order, released leases leave nothing behind", "[random]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random{seed};
  auto below = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  const std::vector<std::string> hosts{"a1", "a2", "b1"};
  auto some_worker = [&](std::uint64_t generation) {
    const auto& host = hosts[below(3)];
    const auto role = below(3);
    return role == 0   ? worker("both/p/" + host + ".0", both, host, generation)
           : role == 1 ? worker("prefill/p/" + host + ".0", prefill, host, generation)
                       : worker("decode/p/" + host + ".0", decode, host, generation);
  };
  shard s{{worker("both/p/a1.0", both, "a1")}};
  std::vector<std::uint64_t> leases;
  std::set<std::uint64_t> seen;
  for (int step = 0; step < 2'000; ++step) {
    switch (below(7)) {
    case 0:
      s.policy.update({{some_worker(7 + below(3))}, {}});
      break;
    case 1:
      s.policy.update({{}, {some_worker(7)}});
      break;
    case 2:
      if (!leases.empty())
        s.policy.release(leases[below(
            static_cast<unsigned>(leases.size()))]);  // some of them for the second time
      break;
    case 3:
      if (below(20) == 0) s.policy.lose_host(hosts[below(3)]);
      break;
    case 4:
      if (!leases.empty())
        s.policy.release_prefill(leases[below(static_cast<unsigned>(leases.size()))]);
      break;
    default: {
      auto q = shard::query(1 + below(100'000));
      q.host = hosts[below(3)];
      auto answer = s.policy.decide(q);
      if (auto* c = std::get_if<route_choice>(&answer)) {
        CHECK(seen.insert(c->lease).second);
        leases.push_back(c->lease);
      }
    }
    }
    // An underflow would be seen as a number that no sum of leases can reach.
    for (const auto& w : s.policy.workers()) REQUIRE(w.leased_tokens < 2'000ULL * 30'000);
  }
  for (auto l : leases) s.policy.release(l);
  CHECK(s.policy.open_leases() == 0);
  for (const auto& w : s.policy.workers()) {
    CHECK(w.leased_tokens == 0);
    CHECK(w.leases == 0);
  }
}

TEST_CASE("a prompt under suspicion comes to workers that have no other such prompt") {
  shard s{
      {worker("both/p/a1.0", msg::Role::BOTH, "a1"), worker("both/p/b1.0", msg::Role::BOTH, "b1")}};
  auto q = s.query();
  q.quarantine = true;
  const auto first = s.choose(q), second = s.choose(q);
  CHECK(first.decode.name != second.decode.name);
  const auto full = s.refuse(q);
  CHECK(full.code == quarantine_full);
  CHECK(full.http_status == 503);
  CHECK(full.retry_after_ms > 0);
  s.choose();  // others are served beside them
  s.policy.release(first.lease);
  CHECK(s.choose(q).decode.name == first.decode.name);
  s.policy.clear(second.lease);  // it goes on, no longer suspected
  s.policy.clear(second.lease);
  CHECK(s.choose(q).decode.name == second.decode.name);
  s.policy.release(second.lease);
  CHECK(s.refuse(q).code == quarantine_full);
}

TEST_CASE("a pair is in quarantine with both its workers, until prefill has done its share") {
  shard s{{worker("prefill/p/a1.0", msg::Role::PREFILL, "a1"),
           worker("decode/p/a1.0", msg::Role::DECODE, "a1"),
           worker("decode/p/b1.0", msg::Role::DECODE, "b1")}};
  auto q = s.query();
  q.quarantine = true;
  const auto first = s.choose(q);
  CHECK(s.refuse(q).code == quarantine_full);
  s.policy.release_prefill(first.lease);
  CHECK(s.choose(q).decode.name != first.decode.name);
}

TEST_CASE("a worker's new life begins without quarantine, and nobody to serve is no full one") {
  shard s{{worker("both/p/a1.0", msg::Role::BOTH, "a1")}};
  auto q = s.query();
  q.quarantine = true;
  const auto old = s.choose(q);
  s.policy.update({{worker("both/p/a1.0", msg::Role::BOTH, "a1", 8)}, {}});
  const auto now = s.choose(q);
  s.policy.release(old.lease);
  CHECK(s.refuse(q).code == quarantine_full);
  s.policy.release(now.lease);
  s.policy.update(
      {{worker("both/p/a1.0", msg::Role::BOTH, "a1", 8, msg::EntryState::UNKNOWN)}, {}});
  CHECK(s.refuse(q).code == "no_ready_worker");
}

TEST_CASE("a slow worker gets nothing new while another can serve, and serves when nobody else "
          "can") {
  auto slow = worker("both/p/a1.0", both, "a1");
  slow.slow = "ten times slower";
  shard s{{slow, worker("both/p/b1.0", both, "b1")}};
  for (int i = 0; i < 20; ++i) CHECK(s.choose().decode.name == "both/p/b1.0");
  SECTION("it recovers") {
    slow.slow.clear();
    s.policy.update({{slow}, {}});
    CHECK(s.choose().decode.name == "both/p/a1.0");
  }
  SECTION("all are slow") {
    auto other = worker("both/p/b1.0", both, "b1");
    other.slow = "slow, too";
    s.policy.update({{other}, {}});
    const auto c = s.choose();
    CHECK(c.decode.name == "both/p/a1.0");
    CHECK(c.reason.find("slow") != std::string::npos);
  }
  SECTION("the other has failed this request") {
    auto q = s.query();
    q.exclude = {"both/p/b1.0"};
    CHECK(s.choose(q).decode.name == "both/p/a1.0");
  }
  SECTION("the other is gone") {
    s.policy.update({{}, {worker("both/p/b1.0", both, "b1")}});
    CHECK(s.choose().decode.name == "both/p/a1.0");
  }
}

TEST_CASE("of pairs the one with fewer slow workers is taken") {
  auto slow_prefill = worker("prefill/p/a1.0", prefill, "a1");
  slow_prefill.slow = "slow";
  auto slow_decode = worker("decode/p/a1.0", decode, "a1");
  slow_decode.slow = "slow";
  shard s{{slow_prefill, worker("prefill/p/b1.0", prefill, "b1"), slow_decode,
           worker("decode/p/b1.0", decode, "b1")}};
  for (int i = 0; i < 5; ++i) {
    const auto c = s.choose();
    CHECK(c.prefill.name == "prefill/p/b1.0");
    CHECK(c.decode.name == "decode/p/b1.0");
  }
}
