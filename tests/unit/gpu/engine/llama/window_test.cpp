// Sliding-window attention, on the real model: its window is 512 tokens.

#include "runner_fixture.hpp"

namespace troupe::engine {
namespace {

using namespace testing;

llama_options gemma_options() {
  auto options = tiny_options();
  options.path = TROUPE_GEMMA_GGUF;
  options.cells = 1024;
  options.slots = 6;
  options.step_tokens = 512;
  return options;
}

TEST_CASE("a sliding-window model has half as many slots, and says so") {
  if (!have_gemma()) return;
  auto options = gemma_options();
  options.slots = 127;
  options.spare_slots = 8;
  CHECK(load(options)->slots() == 127);
  options.slots = 128;
  const auto refused = llama_runner::load(options);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == "too_many_slots");
  CHECK(refused.error().message.find("sliding window") != std::string::npos);
  CHECK(refused.error().message.find("at most 127") != std::string::npos);
}

TEST_CASE("a sliding-window model hands over ranges longer than its window") {
  if (!have_gemma()) return;
  check_handover(gemma_options(), 640, {600, 639}, 12);
}

TEST_CASE("a prefix of a handed-over range is whole, too") {
  if (!have_gemma()) return;
  auto sender = load(gemma_options());
  auto receiver = load(gemma_options());
  const auto tokens = some_tokens(640, sender->info());
  prefill(*sender, 0, tokens, 0, 640, 512);
  REQUIRE(receiver->kv_import(0, 0, 640, exported(*sender, 0, 0, 640)));
  const std::vector<token_id> head(tokens.begin(), tokens.begin() + 61);
  sender->kv_copy(0, 1, 0, 60);
  receiver->kv_copy(0, 1, 0, 60);
  CHECK(continue_greedily(*receiver, 1, head, 8) == continue_greedily(*sender, 1, head, 8));
}

// llama.cpp searches for free cells from where it found the last ones, and would take the first
// that left its window before it came to those that are free.
TEST_CASE("a sliding-window model keeps every position when others need cells") {
  if (!have_gemma()) return;
  auto runner = load(gemma_options());
  const auto others = some_tokens(310, runner->info(), 2);
  const auto tokens = some_tokens(701, runner->info());
  prefill(*runner, 1, others, 0, 300, 512);
  prefill(*runner, 0, tokens, 0, 700, 512);
  clear(*runner, 1);
  prefill(*runner, 1, others, 0, 310, 512);
  const auto truth = runner->truth();
  CHECK(truth.used_cells == 1010);
  CHECK(truth.slots[0].first == 0);
  CHECK(truth.slots[0].last == 699);
  // No room, instead of forgetting what left the window.
  CHECK(runner->forward(chunk(3, tokens, 0, 100)) == forward_status::no_cells);
  CHECK(runner->truth().used_cells == 1010);
}

}  // namespace
}  // namespace troupe::engine
