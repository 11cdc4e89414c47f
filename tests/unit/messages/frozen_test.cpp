// What a frozen message promises: no copy on local sends, sizes checked before allocation, a cap at
// construction, and safety against whatever a wire may bring.

#include "messages/common.capnp.h"
#include "messages/envelope.hpp"
#include "messages/job.capnp.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

using namespace troupe;

namespace {

std::vector<std::byte> framing(const msg::frozen_message& m) {
  auto words = m.to_words();
  std::vector<std::byte> bytes(words.size() * sizeof(capnp::word));
  std::memcpy(bytes.data(), words.begin(), bytes.size());
  return bytes;
}

msg::envelope<msg::PromptPart> part_of(std::size_t bytes) {
  msg::draft<msg::PromptPart> d{bytes + 64};
  auto data = d->initBytes(static_cast<unsigned>(bytes));
  std::iota(data.begin(), data.end(), 0);
  auto e = std::move(d).freeze();
  REQUIRE(e);
  return *std::move(e);
}

std::vector<std::byte> table(std::vector<std::uint32_t> numbers, std::size_t words_that_follow) {
  if (numbers.size() % 2 != 0) numbers.push_back(0);
  std::vector<std::byte> bytes(numbers.size() * 4 + words_that_follow * 8);
  std::memcpy(bytes.data(), numbers.data(), numbers.size() * 4);
  return bytes;
}

}  // namespace

TEST_CASE("a copy of an envelope shares the body", "[messages]") {
  auto e = part_of(1000);
  REQUIRE(e.body.use_count() == 1);
  auto copy = e;
  REQUIRE(e.body.use_count() == 2);
  REQUIRE(copy.body.segments().data() == e.body.segments().data());
}

TEST_CASE("a good size hint makes one segment", "[messages]") {
  REQUIRE(part_of(200'000).body.segments().size() == 1);
}

TEST_CASE("what is above the cap cannot be constructed", "[messages]") {
  msg::draft<msg::PromptPart> d{msg::message_bytes_max + 64};
  d->initBytes(msg::message_bytes_max);
  auto e = std::move(d).freeze();
  REQUIRE_FALSE(e);
  REQUIRE(e.error().code == "message_too_large");
}

TEST_CASE("the largest message goes through framing and back", "[messages]") {
  auto e = part_of(msg::message_bytes_max - 256);
  auto back = msg::frozen_message::from_bytes(framing(e.body));
  REQUIRE(back);
  msg::view<msg::PromptPart> a{e}, b{*back};
  REQUIRE(a->getBytes() == b->getBytes());
}

TEST_CASE("framings that lie are refused before anything is allocated", "[messages]") {
  struct row {
    const char* what;
    std::vector<std::byte> bytes;
    const char* code;
  };
  const std::vector<row> rows = {
      {"empty", {}, "message_malformed"},
      {"three bytes", std::vector<std::byte>(3), "message_malformed"},
      {"2^32 segments", table({0xffffffffU, 1}, 1), "message_malformed"},
      {"65 segments", table(std::vector<std::uint32_t>(66, 64), 1), "message_malformed"},
      {"table cut off",
       std::vector<std::byte>{std::byte{5}, std::byte{0}, std::byte{0}, std::byte{0}},
       "message_malformed"},
      {"no words at all", table({0, 0}, 0), "message_malformed"},
      {"16 GiB announced", table({0, 0x7fffffffU}, 1), "message_too_large"},
      {"more announced than follows", table({0, 10}, 9), "message_malformed"},
      {"less announced than follows", table({0, 10}, 11), "message_malformed"},
  };
  for (const auto& r : rows) {
    INFO(r.what);
    auto m = msg::frozen_message::from_bytes(r.bytes);
    REQUIRE_FALSE(m);
    REQUIRE(m.error().code == r.code);
  }
}

TEST_CASE("any corruption of a message is either refused or read without harm", "[messages]") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random{seed};
  auto original = framing(part_of(300).body);
  for (int round = 0; round < 2'000; ++round) {
    auto bytes = original;
    for (int flips = 0; flips < 4; ++flips)
      bytes[random() % bytes.size()] ^= static_cast<std::byte>(1U << (random() % 8));
    auto m = msg::frozen_message::from_bytes(bytes);
    if (!m) continue;
    try {
      msg::view<msg::PromptPart> v{*m};
      std::size_t sum = v->getKey().getAttempt();
      for (auto b : v->getBytes()) sum += b;
      static_cast<void>(sum);
    } catch (const kj::Exception&) {
      // Cap'n Proto refuses a bad pointer by exception: whoever reads a peer's message catches it
      // at the door.
    }
  }
}

TEST_CASE("a few bytes cannot claim so many entries that reading them takes long", "[messages]") {
  // A batch of one stream, with a list of four million tool calls that have no content.
  const std::array<std::uint64_t, 8> words = {
      7ULL << 32U,            // one segment of seven words
      0x0002'0002ULL << 32U,  // the root: two words of data, two pointers
      0,
      0,
      5 | 10ULL << 32U,           // streams: a list of structs
      5 | 0x0040'0000ULL << 32U,  // its tag: one, 64 pointers
      0x1900'0000'0000'2E00ULL,   // into itself
      0x0000'0000'1900'0000ULL,
  };
  const auto message = msg::frozen_message::from_bytes(std::as_bytes(std::span{words}));
  REQUIRE(message);
  msg::view<msg::TokenBatch> view{*message};
  std::size_t entries = 0;
  try {
    for (auto stream : view->getStreams())
      for ([[maybe_unused]] auto call : stream.getToolCalls()) ++entries;
  } catch (const kj::Exception&) {
  }
  CHECK(entries < 10'000);
}

TEST_CASE("many threads read one message at once", "[messages]") {
  auto e = part_of(10'000);
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        msg::view<msg::PromptPart> v{e};
        if (v->getBytes().size() == 10'000 && v->getBytes()[255] == 255) ++good;
      }
    });
  for (auto& t : threads) t.join();
  REQUIRE(good == 2'000);
}
