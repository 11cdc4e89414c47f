#include "actors/router/shard_state.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace troupe;
using router::session_book;

TEST_CASE("sessions travel whole, in as many messages as it takes") {
  std::vector<session_book::moving> all;
  const auto count = 2 * router::sessions_per_state_max + 10;
  for (std::uint64_t i = 0; i < count; ++i)
    all.push_back({i + 1,
                   i << 40U,
                   {i % 3 == 0 ? "" : "prefill/a-pool-with-a-long-name/host-" + std::to_string(i),
                    "decode/a-pool-with-a-long-name/host-" + std::to_string(i) + ".0"}});
  const auto states = router::make_states({"router/1", 9}, {2, 7}, all);
  REQUIRE(states);
  CHECK(states->size() == 3);
  std::size_t at = 0;
  for (const auto& e : *states) {
    msg::view<msg::ShardState> in{e};
    CHECK(std::string{in->getFromShard().cStr()} == "router/1");
    CHECK(in->getFromGeneration() == 9);
    CHECK(in->getTerm() == 2);
    CHECK(in->getGeneration() == 7);
    for (const auto& s : router::read(*in)) {
      REQUIRE(at < all.size());
      CHECK(s.session == all[at].session);
      CHECK(s.shard_key == all[at].shard_key);
      CHECK(s.used.prefill == all[at].used.prefill);
      CHECK(s.used.decode == all[at].used.decode);
      ++at;
    }
  }
  CHECK(at == all.size());
  CHECK(router::make_states({"router/1", 9}, {}, {})->empty());
}

TEST_CASE("sessions of workers that are not named are left out") {
  msg::draft<msg::ShardState> d;
  d->initWorkers(1).set(0, "both/p/a.0");
  auto sessions = d->initSessions(4);
  for (unsigned i = 0; i < 4; ++i) sessions[i].setSession(i);
  sessions[1].setDecode(1);
  sessions[2].setPrefill(4);
  sessions[3].setPrefill(0);
  const auto e = std::move(d).freeze();
  REQUIRE(e);
  msg::view<msg::ShardState> in{*e};
  const auto all = router::read(*in);
  REQUIRE(all.size() == 2);
  CHECK(all[0].session == 0);
  CHECK(all[0].used.prefill.empty());
  CHECK(all[1].session == 3);
  CHECK(all[1].used.prefill == "both/p/a.0");
}
