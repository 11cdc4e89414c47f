// Frozen messages as CAF carries them: one round trip for each schema, and hostile bytes.

#include "messages/wire.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>
#include <caf/message.hpp>

#include <catch2/catch.hpp>

#include <cstring>
#include <random>
#include <set>
#include <vector>

using namespace troupe;

namespace {

struct system_config : caf::actor_system_config {
  system_config() {
    set("scheduler.max-threads", 1);
    add_message_types<caf::id_block::troupe_messages>();
  }
};

struct fixture {
  system_config config;
  caf::actor_system system{config};

  std::vector<char> bytes_of(caf::message m) {
    std::vector<char> buffer;
    caf::binary_serializer sink{system, buffer};
    REQUIRE_FALSE(sink(m));
    return buffer;
  }
};

}  // namespace

TEST_CASE_METHOD(fixture, "a parcel goes through CAF's wire format", "[messages]") {
  msg::draft<msg::Ping> d;
  d->setSequence(7);
  auto e = std::move(d).freeze();
  REQUIRE(e);
  auto buffer = bytes_of(
      caf::make_message(msg::make_parcel({"decode/p/h1.0", 3}, {"requests/h0", 1}, *e)));
  caf::message back;
  caf::binary_deserializer source{system, buffer};
  REQUIRE_FALSE(source(back));
  REQUIRE(back.match_elements<msg::parcel>());
  const auto& p = back.get_as<msg::parcel>(0);
  REQUIRE(p.to == msg::address{"decode/p/h1.0", 3});
  REQUIRE(p.from == msg::address{"requests/h0", 1});
  REQUIRE(p.schema == msg::schema_id<msg::Ping>());
  REQUIRE(msg::view<msg::Ping> { p.body } -> getSequence() == 7);
}

TEST_CASE_METHOD(fixture, "an envelope keeps its type on CAF's wire", "[messages]") {
  msg::draft<msg::RenewLeases> d;
  d->initKeys(2)[1].setAttempt(5);
  auto e = std::move(d).freeze();
  REQUIRE(e);
  auto buffer = bytes_of(caf::make_message(*e));
  caf::message back;
  caf::binary_deserializer source{system, buffer};
  REQUIRE_FALSE(source(back));
  REQUIRE(back.match_elements<msg::envelope<msg::RenewLeases>>());
  msg::view<msg::RenewLeases> v{back.get_as<msg::envelope<msg::RenewLeases>>(0)};
  REQUIRE(v->getKeys()[1].getAttempt() == 5);
}

TEST_CASE_METHOD(fixture, "hostile bytes never allocate more than the cap and never crash",
                 "[messages]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random{seed};
  msg::draft<msg::PromptPart> d{600};
  d->initBytes(500);
  auto e = std::move(d).freeze();
  REQUIRE(e);
  std::vector<char> original;
  {
    caf::binary_serializer sink{system, original};
    REQUIRE_FALSE(sink(e->body));
  }
  for (int round = 0; round < 2'000; ++round) {
    auto buffer = original;
    // Counts and sizes stand at the front: most flips go there.
    for (int flips = 0; flips < 3; ++flips)
      buffer[random() % (round % 2 == 0 ? 8 : buffer.size())] ^= static_cast<char>(
          1U << (random() % 8));
    buffer.resize(buffer.size() - random() % 20);
    msg::frozen_message m;
    caf::binary_deserializer source{system, buffer};
    if (auto err = source(m)) continue;
    REQUIRE(m.byte_size() <= msg::message_bytes_max);
  }
}

TEST_CASE("schema ids differ", "[messages]") {
  std::set<std::uint64_t> ids;
  std::size_t count = 0;
#define TROUPE_ID(Schema)                                                                          \
  ids.insert(msg::schema_id<msg::Schema>());                                                       \
  ++count;
  TROUPE_ENVELOPE_SCHEMAS(TROUPE_ID)
#undef TROUPE_ID
  REQUIRE(ids.size() == count);
}
