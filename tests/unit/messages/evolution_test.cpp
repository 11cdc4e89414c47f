// A node speaks protocol N and N-1: a newer writer must not disturb an older reader, nor the other
// way round, and what an older node forwards without reading keeps the fields that it does not
// know.

#include "messages/envelope.hpp"
#include "messages/job.capnp.h"
#include "tests/unit/messages/evolution.capnp.h"

#include <catch2/catch.hpp>

using namespace troupe;

namespace {

msg::envelope<test::NewerPromptPart> newer() {
  msg::draft<test::NewerPromptPart> d;
  d->initKey().setAttempt(3);
  d->getKey().setEpoch(99);
  d->setOffset(512);
  d->setBytes(kj::StringPtr("abc").asBytes());
  d->setChecksum(0x1234);
  d->setOrigin("h7");
  return *std::move(d).freeze();
}

}  // namespace

TEST_CASE("an older reader understands a newer writer", "[messages]") {
  msg::view<msg::PromptPart> v{newer().body};
  REQUIRE(v->getKey().getAttempt() == 3);
  REQUIRE(v->getOffset() == 512);
  REQUIRE(v->getBytes().size() == 3);
}

TEST_CASE("a newer reader understands an older writer and sees defaults", "[messages]") {
  msg::draft<msg::PromptPart> d;
  d->initKey().setAttempt(4);
  d->setOffset(1024);
  auto e = std::move(d).freeze();
  REQUIRE(e);
  msg::view<test::NewerPromptPart> v{e->body};
  REQUIRE(v->getKey().getAttempt() == 4);
  REQUIRE(v->getKey().getEpoch() == 17);
  REQUIRE(v->getOffset() == 1024);
  REQUIRE(v->getChecksum() == 0);
  REQUIRE_FALSE(v->hasOrigin());
}

TEST_CASE("unknown fields survive a hop through an older node", "[messages]") {
  auto words = newer().body.to_words();
  auto forwarded = msg::frozen_message::from_bytes(
      {reinterpret_cast<const std::byte*>(words.begin()), words.size() * sizeof(capnp::word)});
  REQUIRE(forwarded);
  msg::view<test::NewerPromptPart> v{*forwarded};
  REQUIRE(v->getKey().getEpoch() == 99);
  REQUIRE(v->getChecksum() == 0x1234);
  REQUIRE(v->getOrigin() == "h7");
}

TEST_CASE("an older node that copies a struct keeps the fields that it does not know",
          "[messages]") {
  msg::view<msg::PromptPart> v{newer().body};
  msg::draft<msg::PromptPart> d;
  d->setKey(v->getKey());
  auto copy = std::move(d).freeze();
  REQUIRE(copy);
  msg::view<test::NewerPromptPart> w{copy->body};
  REQUIRE(w->getKey().getEpoch() == 99);
}

TEST_CASE("a worker that tells no costs has them not known, and one that tells them is understood",
          "[messages]") {
  msg::draft<test::OlderJobDone> d;
  d->initKey().setAttempt(2);
  d->setWorker("both/p/a.0");
  auto old = std::move(d).freeze();
  REQUIRE(old);
  msg::view<msg::JobDone> v{old->body};
  REQUIRE(v->getKey().getAttempt() == 2);
  REQUIRE_FALSE(v->hasCost());

  msg::draft<msg::JobDone> n;
  n->initKey().setAttempt(3);
  n->setWorker("both/p/a.0");
  n->initCost().setSampled(7);
  auto told = std::move(n).freeze();
  REQUIRE(told);
  msg::view<test::OlderJobDone> w{told->body};
  REQUIRE(w->getKey().getAttempt() == 3);
  REQUIRE(w->getWorker() == "both/p/a.0");
}
