#include "gpu/engine/batching/composition.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <random>

using namespace troupe::engine;

TEST_CASE("composition: decode first, then chunks in order, as large as the room") {
  const std::vector<sequence_work> works{{1000}, {0}, {50}, {0}};
  const auto batch = compose_batch(works, 100, 0);
  REQUIRE(batch.size() == 3);
  CHECK((batch[0].sequence == 1 && batch[0].decode));
  CHECK((batch[1].sequence == 3 && batch[1].decode));
  CHECK((batch[2].sequence == 0 && batch[2].tokens == 98 && !batch[2].decode));
}

TEST_CASE("composition: more decoding sequences than fit take turns") {
  const std::vector<sequence_work> works(7);
  std::map<std::size_t, int> turns;
  for (std::uint64_t step = 0; step < 7; ++step) {
    const auto batch = compose_batch(works, 3, step);
    REQUIRE(batch.size() == 3);
    for (const auto& share : batch) ++turns[share.sequence];
  }
  for (std::size_t i = 0; i < 7; ++i) CHECK(turns[i] == 3);
}

TEST_CASE("composition: never above the budget, never more than is wanted, never nothing while "
          "there is work") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 3000; ++round) {
    std::vector<sequence_work> works(random() % 10);
    for (auto& w : works) w.prefill = random() % 3 == 0 ? 0 : static_cast<position>(random() % 300);
    const auto budget = 1 + static_cast<std::uint32_t>(random() % 200);
    const auto batch = compose_batch(works, budget, random());
    std::uint32_t sum = 0;
    for (const auto& share : batch) {
      sum += share.tokens;
      REQUIRE(share.tokens > 0);
      REQUIRE(share.decode == (works[share.sequence].prefill == 0));
      REQUIRE(share.tokens <= std::max<position>(1, works[share.sequence].prefill));
    }
    REQUIRE(sum <= budget);
    REQUIRE(batch.empty() == works.empty());
  }
}
