#include "actors/request/stream_ledger.hpp"

#include <capnp/message.h>
#include <catch2/catch.hpp>

#include <vector>

using namespace troupe;
using troupe::request::stream_ledger;
using verdict = stream_ledger::verdict;

namespace {

verdict take(stream_ledger& l, std::uint16_t choice, std::uint32_t first,
             const std::vector<int>& ids, msg::FinishReason why = msg::FinishReason::NONE,
             std::uint32_t emitted_bytes = 0) {
  capnp::MallocMessageBuilder b;
  auto d = b.initRoot<msg::StreamDelta>();
  d.setChoice(choice);
  d.setFirstIndex(first);
  auto list = d.initIds(static_cast<unsigned>(ids.size()));
  for (unsigned i = 0; i < ids.size(); ++i) list.set(i, ids[i]);
  d.setFinish(why);
  d.setEmittedBytes(emitted_bytes);
  return l.take(d.asReader());
}

const auto stop = msg::FinishReason::STOP;

}  // namespace

TEST_CASE("deltas that continue exactly are fresh, also empty ones that carry only text") {
  stream_ledger l{1};
  CHECK_FALSE(l.anything());
  CHECK(take(l, 0, 0, {1, 2}) == verdict::fresh);
  CHECK(take(l, 0, 2, {3}) == verdict::fresh);
  CHECK(take(l, 0, 3, {}) == verdict::fresh);
  CHECK(l.sampled() == 3);
  CHECK(l.anything());
}

TEST_CASE("what is known already is a duplicate and leaves nothing") {
  stream_ledger l{1};
  take(l, 0, 0, {1, 2, 3});
  CHECK(take(l, 0, 0, {1, 2, 3}) == verdict::duplicate);
  CHECK(take(l, 0, 1, {2}) == verdict::duplicate);
  CHECK(l.sampled() == 3);
}

TEST_CASE("missing tokens are a gap, and so is a delta that is known in part") {
  stream_ledger l{1};
  CHECK(take(l, 0, 1, {1}) == verdict::gap);
  take(l, 0, 0, {1, 2});
  CHECK(take(l, 0, 3, {4}) == verdict::gap);
  CHECK(take(l, 0, 1, {2, 3}) == verdict::gap);
  CHECK(l.sampled() == 2);
}

TEST_CASE("a choice that nobody asked for breaks the attempt") {
  stream_ledger l{2};
  CHECK(take(l, 2, 0, {1}) == verdict::gap);
}

TEST_CASE("an end that comes without its tokens is never lost in silence") {
  stream_ledger l{1};
  take(l, 0, 0, {1, 2});
  CHECK(take(l, 0, 0, {1, 2}, stop) == verdict::gap);
  CHECK_FALSE(l.all_done());
}

TEST_CASE("choices end one by one; after its end a choice takes nothing") {
  stream_ledger l{2};
  CHECK(take(l, 1, 0, {7}, msg::FinishReason::LENGTH) == verdict::fresh);
  CHECK_FALSE(l.all_done());
  CHECK(take(l, 1, 1, {8}) == verdict::duplicate);
  CHECK(take(l, 0, 0, {}, stop) == verdict::fresh);
  CHECK(l.all_done());
  CHECK(l.sampled() == 1);
  CHECK(l.finish() == stop);
}

TEST_CASE("what another worker needs to go on is written whole") {
  stream_ledger l{3};
  take(l, 0, 0, {1, 2}, msg::FinishReason::NONE, 11);
  take(l, 0, 2, {3}, msg::FinishReason::NONE, 14);
  take(l, 2, 0, {-5}, stop, 1);
  capnp::MallocMessageBuilder b;
  l.write(b.initRoot<msg::Resume>());
  auto choices = b.getRoot<msg::Resume>().asReader().getChoices();
  REQUIRE(choices.size() == 3);
  CHECK(choices[0].getChoice() == 0);
  REQUIRE(choices[0].getIds().size() == 3);
  CHECK(choices[0].getIds()[2] == 3);
  CHECK(choices[0].getEmittedBytes() == 14);
  CHECK_FALSE(choices[0].getDone());
  CHECK(choices[1].getIds().size() == 0);
  CHECK(choices[2].getIds()[0] == -5);
  CHECK(choices[2].getDone());
}

TEST_CASE("a choice that ended without a token is something to go on from") {
  stream_ledger l{2};
  take(l, 0, 0, {}, stop);
  CHECK(l.sampled() == 0);
  CHECK(l.anything());
}
