#include "actors/control/assignment.hpp"
#include "actors/control/key_of_death.hpp"
#include "actors/control/shard_key.hpp"
#include "messages/envelope.hpp"

#include <capnp/message.h>
#include <catch2/catch.hpp>

#include <map>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::control;

namespace {

const std::vector<std::string> three{"router/0", "router/1", "router/2"};

expected<assignment> make(std::vector<slice> slices) {
  return assignment::make({3, 5}, three, std::move(slices));
}

}  // namespace

TEST_CASE("every key has its slice, up to both ends of the key space") {
  const auto a = make({{0, {0}}, {100, {1}}, {200, {0, 2}}}).value();
  CHECK(a.shard_of(0) == "router/0");
  CHECK(a.shard_of(99) == "router/0");
  CHECK(a.shard_of(100) == "router/1");
  CHECK(a.shard_of(199) == "router/1");
  CHECK(a.shard_of(200, 0) == "router/0");
  CHECK(a.shard_of(200, 1) == "router/2");
  CHECK(a.shard_of(~key64{0}, 7) == "router/2");
  CHECK(a.last_of(0) == 99);
  CHECK(a.last_of(2) == ~key64{0});
  CHECK(a.has("router/2", 200));
  CHECK_FALSE(a.has("router/1", 200));
  CHECK_FALSE(a.has("router/9", 200));
}

TEST_CASE("what would leave a key without a shard is no assignment") {
  CHECK_FALSE(make({}));
  CHECK_FALSE(make({{1, {0}}}));                      // key 0
  CHECK_FALSE(make({{0, {0}}, {5, {}}}));             // nobody
  CHECK_FALSE(make({{0, {3}}}));                      // not there
  CHECK_FALSE(make({{0, {1, 1}}}));                   // twice
  CHECK_FALSE(make({{0, {1, 0}}}));                   // out of order
  CHECK_FALSE(make({{0, {0}}, {9, {1}}, {9, {2}}}));  // an empty slice
  CHECK_FALSE(assignment::make({}, {}, {{0, {0}}}));
  CHECK_FALSE(assignment::make({}, {"a", "a"}, {{0, {0}}}));
  CHECK_FALSE(make(std::vector<slice>(slices_max + 1)));
}

TEST_CASE("the uniform assignment gives each shard the same, and anything is newer") {
  for (std::size_t n = 1; n <= 7; ++n) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < n; ++i) names.push_back("router/" + std::to_string(i));
    const auto a = assignment::uniform(names);
    std::map<std::string, double> part;
    for (std::size_t i = 0; i < a.slices().size(); ++i)
      part[a.shard_of(a.slices()[i].first)] += width(a.slices()[i].first, a.last_of(i));
    CHECK(part.size() == n);
    for (const auto& [name, x] : part) CHECK(x == Approx(1.0 / static_cast<double>(n)));
    CHECK(assignment_number{0, 1} > a.number());
    CHECK(assignment::make(a.number(), a.shards(), a.slices()));
  }
}

TEST_CASE("a higher term is newer, whatever the generation") {
  CHECK(assignment_number{2, 0} > assignment_number{1, 99});
  CHECK(assignment_number{2, 3} > assignment_number{2, 2});
}

TEST_CASE("an assignment goes over a wire and comes back") {
  capnp::MallocMessageBuilder message;
  const auto a = make({{0, {0}}, {100, {1}}, {200, {0, 2}}}).value();
  write(message.initRoot<msg::Assignment>(), a);
  const auto b = read(message.getRoot<msg::Assignment>().asReader());
  REQUIRE(b);
  CHECK(b->number() == a.number());
  CHECK(b->shards() == a.shards());
  CHECK(b->slices() == a.slices());
}

TEST_CASE("from a wire nothing is taken that is no assignment") {
  capnp::MallocMessageBuilder message;
  auto out = message.initRoot<msg::Assignment>();
  CHECK(read(out.asReader()).error().code == "bad_assignment");
  out.initShards(1).set(0, "router/0");
  auto slices = out.initSlices(1);
  slices[0].initReplicas(1).set(0, 1);
  CHECK(read(out.asReader()).error().code == "bad_assignment");
  slices[0].getReplicas().set(0, 0);
  CHECK(read(out.asReader()));
  out.setTerm(term_max);
  CHECK(read(out.asReader()));
  out.setTerm(term_max + 1);  // after the last there would be no higher one
  CHECK(read(out.asReader()).error().code == "bad_assignment");
  out.setTerm(1);
  slices[0].initReplicas(replicas_max + 1);
  CHECK(read(out.asReader()).error().code == "bad_assignment");
}

TEST_CASE("a key is the session's, or the prompt's first block's, under its model") {
  const std::vector<std::uint64_t> chain{11, 22}, longer{11, 22, 33}, other{12, 22};
  CHECK(shard_key("m", "s", chain, 1) == shard_key("m", "s", other, 2));
  CHECK(shard_key("m", "s", chain, 1) != shard_key("m", "t", chain, 1));
  CHECK(shard_key("m", "s", chain, 1) != shard_key("n", "s", chain, 1));
  CHECK(shard_key("m", "", chain, 1) == shard_key("m", "", longer, 2));
  CHECK(shard_key("m", "", chain, 1) != shard_key("m", "", other, 1));
  CHECK(shard_key("m", "", chain, 1) != shard_key("n", "", chain, 1));
  CHECK(shard_key("m", "", {}, 1) != shard_key("m", "", {}, 2));
}

TEST_CASE("a series of crashes looks like a key of death, until it is old") {
  key_of_death k;
  key_of_death::clock::time_point now{std::chrono::hours{1}};
  k.crashed(now, 4);
  CHECK_FALSE(k.suspected(now));  // one of four is a quarter, and no series
  k.crashed(now + std::chrono::minutes{1}, 3);
  CHECK(k.suspected(now + std::chrono::minutes{1}));
  CHECK_FALSE(k.suspected(now + std::chrono::minutes{11}));
  key_of_death large;
  for (int i = 0; i < 4; ++i) large.crashed(now, 20 - static_cast<std::size_t>(i));
  CHECK_FALSE(large.suspected(now));
  large.crashed(now, 16);
  CHECK(large.suspected(now));  // 5 of the 20 that there were at the first
}
