#include "runner_fixture.hpp"

#include "gpu/engine/llama/kv_format.hpp"

#include <cstring>
#include <random>

namespace troupe::engine {
namespace {

using namespace testing;

TEST_CASE("KV handed over in pieces continues as the local one") {
  check_handover(tiny_options(), 400, {399}, 24);
  check_handover(tiny_options(), 400, {100, 200, 300, 399}, 24);
  check_handover(tiny_options(), 400, {1, 2, 257, 398, 399}, 24);
}

TEST_CASE("pieces may come in any order") {
  auto sender = load(tiny_options());
  auto receiver = load(tiny_options());
  const auto tokens = some_tokens(301, sender->info());
  prefill(*sender, 0, tokens, 0, 300);
  for (const auto& [begin, end] :
       std::vector<std::pair<position, position>>{{200, 300}, {0, 100}, {100, 200}}) {
    auto done = receiver->kv_import(4, begin, end, exported(*sender, 0, begin, end));
    if (!done) FAIL(done.error().message);
  }
  CHECK(receiver->truth().used_cells == 300);
  CHECK(continue_greedily(*receiver, 4, tokens, 8) == continue_greedily(*sender, 0, tokens, 8));
}

TEST_CASE("used cells are exact while pieces are missing in between") {
  auto sender = load(tiny_options());
  auto receiver = load(tiny_options());
  const auto tokens = some_tokens(301, sender->info());
  prefill(*sender, 0, tokens, 0, 300);
  REQUIRE(receiver->kv_import(4, 200, 300, exported(*sender, 0, 200, 300)));
  REQUIRE(receiver->kv_import(4, 0, 50, exported(*sender, 0, 0, 50)));
  CHECK(receiver->truth().used_cells == 150);
}

TEST_CASE("an import goes behind a prefix that the receiver has already, and among others") {
  auto sender = load(tiny_options());
  auto receiver = load(tiny_options());
  const auto tokens = some_tokens(300, sender->info());
  const auto others = some_tokens(90, sender->info(), 9);
  prefill(*receiver, 0, others, 0, 90);
  prefill(*receiver, 1, tokens, 0, 130);
  prefill(*sender, 0, tokens, 0, 299);
  REQUIRE(receiver->kv_import(1, 130, 299, exported(*sender, 0, 130, 299)));
  CHECK(receiver->truth().used_cells == 90 + 299);
  CHECK(continue_greedily(*receiver, 1, tokens, 12) == continue_greedily(*sender, 0, tokens, 12));
}

TEST_CASE("what is not there cannot be exported, and a buffer that is too small is no disaster") {
  auto runner = load(tiny_options());
  const auto tokens = some_tokens(50, runner->info());
  prefill(*runner, 0, tokens, 0, 50);
  std::vector<std::byte> out(runner->kv_export_bytes(200));
  CHECK(runner->kv_export(0, 0, 51, out).error().code == "kv_export_failed");
  CHECK(runner->kv_export(0, 60, 70, out).error().code == "kv_export_failed");
  CHECK(runner->kv_export(1, 0, 1, out).error().code == "kv_export_failed");
  CHECK(runner->kv_export(0, 5, 5, out).error().code == "kv_export_failed");
  CHECK(runner->kv_export(0, 0, 50, std::span(out).first(100)).error().code == "kv_export_failed");
  CHECK(runner->kv_export(0, 0, 50, std::span(out).first(0)).error().code == "kv_export_failed");
  CHECK(runner->truth().used_cells == 50);
  CHECK(exported(*runner, 0, 0, 50).size() <= runner->kv_export_bytes(50));
}

TEST_CASE("a piece that is wrong in any way is refused and leaves nothing behind") {
  auto sender = load(tiny_options());
  auto receiver = load(tiny_options());
  const auto tokens = some_tokens(64, sender->info());
  prefill(*sender, 0, tokens, 0, 64);
  const auto good = exported(*sender, 0, 16, 48);
  const auto refused = [&](std::span<const std::byte> piece, position begin, position end) {
    auto done = receiver->kv_import(0, begin, end, piece);
    REQUIRE_FALSE(done);
    CHECK(done.error().code == "kv_import_failed");
    CHECK(receiver->truth().used_cells == 0);
  };
  SECTION("another range") {
    refused(good, 0, 32);
    refused(good, 16, 47);
    refused(good, 16, 16);
    refused(good, 48, 16);
  }
  SECTION("cut off anywhere") {
    for (std::size_t size = 0; size < good.size(); size += size < 64 ? 1 : 97)
      refused(std::span(good).first(size), 16, 48);
  }
  SECTION("longer than it says") {
    auto longer = good;
    longer.resize(good.size() + 8);
    refused(longer, 16, 48);
  }
  SECTION("any bit flipped") {
    const auto seed = std::random_device{}();
    std::mt19937 random(seed);
    INFO("seed " << seed);
    for (int i = 0; i < 300; ++i) {
      auto bad = good;
      const auto at = i < 40 ? static_cast<std::size_t>(i) : random() % bad.size();
      bad[at] ^= static_cast<std::byte>(1U << (random() % 8));
      refused(bad, 16, 48);
    }
  }
  SECTION("rubbish under a right header") {
    // The checksum says nothing about what llama.cpp finds inside: it must refuse it without harm.
    const auto seed = std::random_device{}();
    std::mt19937 random(seed);
    INFO("seed " << seed);
    for (int i = 0; i < 50; ++i) {
      auto bad = good;
      for (auto b = sizeof(kv_header); b < sizeof(kv_header) + 64; ++b)
        bad[b] = static_cast<std::byte>(random());
      seal(bad, receiver->info().kv_layout, 16, 48, bad.size() - sizeof(kv_header));
      refused(bad, 16, 48);
    }
  }
  REQUIRE(receiver->kv_import(0, 16, 48, good));
  CHECK(receiver->truth().used_cells == 32);
}

TEST_CASE("an import without room fails whole") {
  auto sender = load(tiny_options());
  auto options = tiny_options();
  options.cells = 256;
  auto receiver = load(options);
  const auto tokens = some_tokens(300, sender->info());
  prefill(*sender, 0, tokens, 0, 300);
  prefill(*receiver, 0, tokens, 0, 200);
  auto done = receiver->kv_import(1, 0, 100, exported(*sender, 0, 0, 100));
  REQUIRE_FALSE(done);
  CHECK(done.error().code == "kv_import_failed");
  CHECK(receiver->truth().used_cells == 200);
  receiver->kv_remove(0, 100, 200);
  CHECK(receiver->kv_import(1, 0, 100, exported(*sender, 0, 0, 100)));
}

}  // namespace
}  // namespace troupe::engine
