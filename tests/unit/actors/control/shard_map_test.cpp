#include "actors/control/shard_map.hpp"

#include <catch2/catch.hpp>

#include <set>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::control;

namespace {

const std::vector<std::string> four{"router/0", "router/1", "router/2", "router/3"};
constexpr key64 key = 1'000;

directory::snapshot known(const std::vector<std::string>& names) {
  directory::snapshot all;
  for (const auto& n : names) {
    all[n].name = n;
    all[n].state = msg::EntryState::READY;
  }
  return all;
}
assignment two_replicas() { return assignment::make({}, four, {{0, {1, 2}}}).value(); }

}  // namespace

TEST_CASE("a shard of the key is asked, which one says the draw") {
  const auto a = two_replicas();
  CHECK(choose_shard(a, known(four), key, 0, 0) == "router/1");
  CHECK(choose_shard(a, known(four), key, 1, 0) == "router/2");
  CHECK(choose_shard(a, known(four), key, 7, 0) == "router/2");
}

TEST_CASE("a shard that the directory doesn't know is passed over: its replica, then any other") {
  const auto a = two_replicas();
  CHECK(choose_shard(a, known({"router/0", "router/2", "router/3"}), key, 0, 0) == "router/2");
  const auto other = choose_shard(a, known({"router/0", "router/3"}), key, 0, 0);
  CHECK((other == "router/0" || other == "router/3"));
  CHECK(choose_shard(a, known({"router/3"}), key, 0, 0) == "router/3");
}

TEST_CASE("a shard that begins or drains is asked only when none is ready") {
  const auto a = two_replicas();
  auto all = known(four);
  all["router/1"].state = msg::EntryState::STARTING;
  CHECK(choose_shard(a, all, key, 0, 0) == "router/2");
  all["router/2"].state = msg::EntryState::DRAINING;
  const auto other = choose_shard(a, all, key, 0, 0);
  CHECK((other == "router/0" || other == "router/3"));
  all["router/0"].state = all["router/3"].state = msg::EntryState::STARTING;
  CHECK(choose_shard(a, all, key, 0, 0) == "router/1");
  CHECK(choose_shard(a, all, key, 0, 1) == "router/2");
  // Not one that is nowhere, as long as another is there at all.
  all.erase("router/1");
  CHECK(choose_shard(a, all, key, 0, 0) == "router/2");
}

TEST_CASE("what did not answer is not asked again before all others were") {
  const auto a = two_replicas();
  std::set<std::string> asked;
  for (std::uint32_t tried = 0; tried < 4; ++tried)
    asked.insert(choose_shard(a, known(four), key, 0, tried));
  CHECK(asked.size() == 4);
  CHECK(choose_shard(a, known(four), key, 0, 4) == "router/1");
  // Replicas first.
  CHECK(choose_shard(a, known(four), key, 0, 1) == "router/2");
}

TEST_CASE("without news of any shard it is as if all were there") {
  const auto a = two_replicas();
  CHECK(choose_shard(a, {}, key, 0, 0) == "router/1");
  CHECK(choose_shard(a, {}, key, 0, 1) == "router/2");
}

TEST_CASE("a lost shard's keys go to all others, not to one") {
  const auto a = assignment::make({}, four, {{0, {1}}}).value();
  std::set<std::string> asked;
  for (key64 k = 0; k < 64; ++k)
    asked.insert(choose_shard(a, known({"router/0", "router/2", "router/3"}), k, 0, 0));
  CHECK(asked.size() == 3);
}

TEST_CASE("a map takes what is newer only") {
  shard_map m{four};
  CHECK_FALSE(m.offer(assignment::make({0, 0}, four, {{0, {1}}}).value()));
  CHECK(m.offer(assignment::make({2, 1}, four, {{0, {1}}}).value()));
  CHECK_FALSE(m.offer(assignment::make({1, 9}, four, {{0, {2}}}).value()));
  CHECK_FALSE(m.offer(assignment::make({2, 1}, four, {{0, {3}}}).value()));
  CHECK(m.get()->shard_of(key) == "router/1");
}
