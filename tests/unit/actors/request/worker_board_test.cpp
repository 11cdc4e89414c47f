#include "actors/request/worker_board.hpp"

#include "messages/wire.hpp"

#include <catch2/catch.hpp>

#include <cstdint>

using namespace troupe;
using request::worker_board;

namespace {

msg::envelope<msg::WorkerReport> report(std::uint64_t generation, std::uint64_t steps,
                                        std::uint64_t ticks, std::uint32_t running = 0) {
  msg::draft<msg::WorkerReport> d;
  d->setWorker("both/p/a.0");
  d->setGeneration(generation);
  d->setSteps(steps);
  d->setTicks(ticks);
  d->setRunning(running);
  return std::move(d).freeze().value();
}

}  // namespace

TEST_CASE("of a report that comes by several shards the newest counts, in whatever order") {
  // How it can fail: a slow shard's copy of an old report takes the place of a new one.
  worker_board b;
  CHECK(b.put(report(7, 10, 3, 5)));
  CHECK(b.put(report(7, 11, 1, 6)));
  CHECK_FALSE(b.put(report(7, 10, 3, 5)));
  CHECK_FALSE(b.put(report(7, 11, 0, 5)));
  CHECK(b.put(report(7, 11, 1, 4)));  // nothing was computed: its streams were cancelled
  CHECK_FALSE(b.put(report(6, 99, 9)));
  directory::snapshot all;
  auto& e = all["both/p/a.0"];
  e.name = "both/p/a.0";
  e.generation = 7;
  e.role = msg::Role::BOTH;
  CHECK(b.to_json(all).find("\"running\":4") != std::string::npos);
  CHECK(b.put(report(8, 0, 0)));
  CHECK_FALSE(b.put(report(7, 12, 0)));
}
