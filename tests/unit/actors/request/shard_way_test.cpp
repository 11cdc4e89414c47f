#include "actors/request/owed_routes.hpp"
#include "actors/request/shard_way.hpp"

#include <catch2/catch.hpp>

#include <memory>
#include <set>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::request;
using namespace std::chrono_literals;

namespace {

submission prompt(std::vector<std::uint64_t> chain, const std::string& session = {},
                  const std::string& tenant = {}, std::uint64_t id = 1) {
  auto content = std::make_shared<prompt_content>();
  content->chain = std::move(chain);
  submission s;
  s.id = {id * 0xD6E8'FEB8'6659'FD93ULL, id};
  s.model = "m";
  s.session = session;
  s.tenant = tenant;
  s.prompts = {content, content};
  return s;
}

directory::snapshot ready(const std::vector<std::string>& shards) {
  directory::snapshot all;
  for (const auto& name : shards) {
    all[name].name = name;
    all[name].state = msg::EntryState::READY;
  }
  return all;
}

}  // namespace

TEST_CASE("a conversation keeps its key from turn to turn, and its draw once it is long enough") {
  std::vector<std::uint64_t> chain{1, 2, 3, 4, 5, 6, 7, 8};
  const auto first = find_way(prompt(chain), 0);
  chain.push_back(9);
  const auto next = find_way(prompt(chain, {}, {}, 2), 1);
  CHECK(first.key == next.key);
  CHECK(first.draw == next.draw);
  // Another conversation with the same beginning has the same key, and may have another shard.
  chain[7] = 80;
  CHECK(find_way(prompt(chain), 0).key == first.key);
  CHECK(find_way(prompt(chain), 0).draw != first.draw);
}

TEST_CASE("a session's key is that of its tenant's name for it") {
  const auto mine = find_way(prompt({1}, "me", "a"), 0);
  CHECK(mine.key == find_way(prompt({2, 3}, "me", "a", 7), 0).key);
  CHECK(mine.draw == find_way(prompt({2, 3}, "me", "a", 7), 0).draw);
  CHECK(mine.key != find_way(prompt({1}, "me", "b"), 0).key);
  CHECK(mine.key != find_way(prompt({1}, "me"), 0).key);
}

TEST_CASE("prompts that must be alone have one way for each model") {
  CHECK(quarantine_way("m").key == quarantine_way("m").key);
  CHECK(quarantine_way("m").draw == quarantine_way("m").draw);
  CHECK(quarantine_way("m").key != quarantine_way("n").key);
}

TEST_CASE("prompts shorter than a block are spread, those of one request, too") {
  std::set<std::uint64_t> keys;
  for (std::uint64_t id = 1; id <= 50; ++id)
    for (std::uint16_t p = 0; p < 2; ++p) keys.insert(find_way(prompt({}, {}, {}, id), p).key);
  CHECK(keys.size() == 100);
  CHECK(find_way(prompt({}, {}, {}, 3), 0).key == find_way(prompt({}, {}, {}, 3), 0).key);
}

TEST_CASE("a shard that was silent rests while others are there, and not for ever") {
  const std::vector<std::string> three{"router/0", "router/1", "router/2"};
  const control::shard_map map{three};
  const auto all = ready(three);
  silent_shards silent;
  const silent_shards::time_point now{1h};
  const shard_way way{5, 0};
  const auto home = choose_shard(map, all, silent, way, 0, now).name;
  silent.note(home, now, now);
  const auto other = choose_shard(map, all, silent, way, 0, now).name;
  CHECK(other != home);
  silent.note(other, now, now);
  const auto last = choose_shard(map, all, silent, way, 0, now).name;
  CHECK(std::set<std::string>{home, other, last}.size() == 3);
  silent.note(last, now, now);
  CHECK(choose_shard(map, all, silent, way, 0, now).name == home);  // all are alike
  CHECK(choose_shard(map, all, silent, way, 0, now + silent_shard_rest - 1ms).name == home);
  silent.note(other, now, now + 1s);
  CHECK(choose_shard(map, all, silent, way, 1, now + silent_shard_rest).name != other);
  CHECK(choose_shard(map, all, silent, way, 0, now + silent_shard_rest).name == home);
  silent.note(home, now, now + 2s);
  CHECK(choose_shard(map, all, silent, way, 0, now + silent_shard_rest).name != home);
  silent.heard(home, now + 3s);
  CHECK(choose_shard(map, all, silent, way, 0, now + silent_shard_rest).name == home);
}

TEST_CASE("a question without an answer says nothing of a shard that has answered younger ones") {
  silent_shards silent;
  const silent_shards::time_point now{1h};
  silent.heard("router/0", now);
  silent.note("router/0", now - 1ms, now + 1s);
  CHECK_FALSE(silent.rests("router/0", now + 1s));
  silent.note("router/0", now + 1ms, now + 1s);
  CHECK(silent.rests("router/0", now + 1s));
}

TEST_CASE("after a refusal those that are ready are asked first, and a shard that begins, too") {
  const std::vector<std::string> names{"router/0", "router/1", "router/2", "router/3"};
  const control::shard_map map{names};
  auto all = ready({"router/0", "router/1"});
  for (const auto& [name, state] : {std::pair{"router/2", msg::EntryState::STARTING},
                                    std::pair{"router/3", msg::EntryState::DRAINING}}) {
    all[name].name = name;
    all[name].state = state;
    all[name].generation = 7;
  }
  silent_shards silent;
  const silent_shards::time_point now{1h};
  for (std::uint64_t key = 0; key < 20; ++key) {
    CAPTURE(key);
    const shard_way way{key << 58U, key};
    std::vector<std::string> refused{"router/1"};
    REQUIRE(other_shard(map, all, silent, way, refused, now)->name == "router/0");
    refused.emplace_back("router/0");
    const auto last = other_shard(map, all, silent, way, refused, now);
    REQUIRE(last);
    CHECK(last->name == "router/2");
    CHECK(last->generation == 7);
    refused.emplace_back("router/2");
    CHECK_FALSE(other_shard(map, all, silent, way, refused, now));
  }
  silent.note("router/2", now, now);
  CHECK_FALSE(other_shard(map, all, silent, {1, 1}, {"router/0", "router/1"}, now));
}

TEST_CASE("answers that are owed are late, or their shard's, once") {
  owed_routes owed;
  const owed_routes::time_point now{1h};
  const msg::job_key a{{1, 1}, 0, 1}, b{{1, 2}, 0, 1}, c{{1, 3}, 0, 1}, d{{1, 4}, 0, 1};
  CHECK(owed.add(a, "router/0", 7, now + 1s));
  owed.add(b, "router/1", 7, now + 2s);
  owed.add(c, "router/1", 7, now + 3s);
  owed.add(d, "router/0", 7, now + 4s);
  owed.remove(b);
  owed.remove(b);
  const auto late = owed.take_late(now + 1s);
  REQUIRE(late.size() == 1);
  CHECK(late[0].attempt == a);
  CHECK(late[0].shard == "router/0");
  const auto lost = owed.take_of("router/1", 0);
  REQUIRE(lost.size() == 1);
  CHECK(lost[0].attempt == c);
  CHECK(owed.take_of("router/1", 0).empty());
  CHECK(owed.take_late(now + 1h).size() == 1);
  // Asked again under the same number, of another shard.
  owed.add(a, "router/0", 7, now + 1s);
  owed.add(a, "router/1", 7, now + 5s);
  CHECK(owed.take_of("router/0", 0).empty());
  CHECK(owed.take_late(now + 4s).empty());
  CHECK(owed.take_late(now + 5s).size() == 1);
  // A younger one has the name: what that owes comes.
  owed.add(a, "router/0", 7, now + 9s);
  owed.add(b, "router/0", 8, now + 9s);
  const auto older = owed.take_of("router/0", 8);
  REQUIRE(older.size() == 1);
  CHECK(older[0].attempt == a);
  CHECK(owed.take_late(now + 9s).size() == 1);
}
