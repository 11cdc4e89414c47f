#include "runner_fixture.hpp"

#include <cmath>
#include <thread>

namespace troupe::engine {
namespace {

using namespace testing;

TEST_CASE("the same prompt gives the same continuation, also after other work") {
  auto runner = load(tiny_options());
  const auto tokens = some_tokens(300, runner->info());
  prefill(*runner, 0, tokens, 0, 299);
  const auto first = continue_greedily(*runner, 0, tokens, 24);
  clear(*runner, 0);
  const auto other = some_tokens(77, runner->info(), 2);
  prefill(*runner, 3, other, 0, 77);
  clear(*runner, 3);
  prefill(*runner, 5, tokens, 0, 299);
  CHECK(continue_greedily(*runner, 5, tokens, 24) == first);
  CHECK(continue_greedily(*runner, 1, other, 1) != std::vector<token_id>{-1});
}

TEST_CASE("one changed token early in the prompt changes the logits") {
  auto runner = load(tiny_options());
  auto tokens = some_tokens(100, runner->info());
  prefill(*runner, 0, tokens, 0, 99);
  REQUIRE(runner->forward(chunk(0, tokens, 99, 100, true)) == forward_status::done);
  const std::vector<float> before(runner->logits(0).begin(), runner->logits(0).end());
  tokens[3] += 1;
  prefill(*runner, 1, tokens, 0, 99);
  REQUIRE(runner->forward(chunk(1, tokens, 99, 100, true)) == forward_status::done);
  CHECK_FALSE(std::equal(before.begin(), before.end(), runner->logits(0).begin()));
}

TEST_CASE("logits are found by their index in a mixed batch") {
  auto runner = load(tiny_options());
  const auto a = some_tokens(20, runner->info(), 1);
  const auto b = some_tokens(30, runner->info(), 2);
  prefill(*runner, 0, a, 0, 19);
  prefill(*runner, 1, b, 0, 29);
  prefill(*runner, 2, a, 0, 19);
  REQUIRE(runner->forward(chunk(2, a, 19, 20, true)) == forward_status::done);
  const std::vector<float> alone(runner->logits(0).begin(), runner->logits(0).end());
  std::vector<batch_token> batch{{1, b[29], 29, true}, {0, a[19], 19, true}};
  for (const auto& t : chunk(3, a, 0, 15)) batch.push_back(t);
  REQUIRE(runner->forward(batch) == forward_status::done);
  REQUIRE(runner->logits(1).size() == runner->info().vocabulary);
  CHECK(greedy(runner->logits(1)) == greedy(alone));
  CHECK(runner->logits(2).empty());  // it wanted none
}

TEST_CASE("copied sequences share cells and go on apart") {
  auto runner = load(tiny_options());
  const auto tokens = some_tokens(50, runner->info());
  prefill(*runner, 0, tokens, 0, 50);
  runner->kv_copy(0, 1, 0, 40);
  CHECK(runner->truth().used_cells == 50);
  CHECK(runner->truth().slots[1].last == 39);
  runner->kv_copy(0, 1, 0, 45);  // the first 40 are there already
  CHECK(runner->truth().used_cells == 50);
  clear(*runner, 0);
  CHECK(runner->truth().used_cells == 45);
  prefill(*runner, 1, tokens, 45, 50);
  prefill(*runner, 2, tokens, 0, 50);
  runner->kv_copy(1, 3, 0, 49);
  clear(*runner, 1);
  CHECK(continue_greedily(*runner, 3, tokens, 5).size() == 5);
  CHECK(runner->truth().used_cells == 49 + 5 + 50);
  runner->kv_remove(2, 10, runner->cells());
  CHECK(runner->truth().used_cells == 49 + 5 + 10);
  clear(*runner, 2);
  clear(*runner, 3);
  CHECK(runner->truth().used_cells == 0);
}

TEST_CASE("a reused prefix continues as the computed one") {
  auto runner = load(tiny_options());
  const auto tokens = some_tokens(120, runner->info());
  prefill(*runner, 0, tokens, 0, 119);
  const auto expected = continue_greedily(*runner, 0, tokens, 16);
  runner->kv_copy(0, 1, 0, 60);
  prefill(*runner, 1, tokens, 60, 119);
  CHECK(continue_greedily(*runner, 1, tokens, 16) == expected);
}

TEST_CASE("an abort ends a pass, and its tokens leave nothing behind") {
  auto options = tiny_options();
  options.step_tokens = 2048;
  auto runner = load(options);
  const auto tokens = some_tokens(2000, runner->info());
  prefill(*runner, 0, tokens, 0, 20);
  const auto before = runner->ticks();
  runner->request_abort();
  CHECK(runner->forward(chunk(0, tokens, 20, 2000)) == forward_status::aborted);
  CHECK(runner->ticks() > before);
  const auto truth = runner->truth();
  CHECK(truth.used_cells == 20);
  CHECK(truth.slots[0].last == 19);
  prefill(*runner, 0, tokens, 20, 100);
  CHECK(runner->truth().used_cells == 100);
}

TEST_CASE("an abort from another thread is heard inside a pass") {
  auto options = tiny_options();
  options.step_tokens = 2048;
  auto runner = load(options);
  const auto tokens = some_tokens(2048, runner->info());
  // The pass may be over before the other thread runs: until one is caught.
  bool caught = false;
  for (int attempt = 0; attempt < 50 && !caught; ++attempt) {
    const auto start = runner->ticks();
    std::thread other([&] {
      while (runner->ticks() == start) std::this_thread::yield();
      runner->request_abort();
    });
    caught = runner->forward(chunk(0, tokens, 0, 2048)) == forward_status::aborted;
    other.join();
    CHECK(runner->truth().used_cells == (caught ? 0 : 2048));
    clear(*runner, 0);
    while (runner->forward(chunk(0, tokens, 0, 1)) == forward_status::aborted) {
    }
    clear(*runner, 0);
  }
  CHECK(caught);
}

TEST_CASE("without free cells a pass fails whole, and works when there are some") {
  auto options = tiny_options();
  options.cells = 256;
  auto runner = load(options);
  const auto tokens = some_tokens(300, runner->info());
  prefill(*runner, 0, tokens, 0, 200);
  CHECK(runner->forward(chunk(1, tokens, 0, 100)) == forward_status::no_cells);
  CHECK(runner->truth().used_cells == 200);
  CHECK(runner->truth().slots[1].last == -1);
  runner->kv_remove(0, 100, 200);
  CHECK(runner->forward(chunk(1, tokens, 0, 100)) == forward_status::done);
  CHECK(runner->truth().used_cells == 200);
}

TEST_CASE("a batch that llama.cpp refuses fails and changes nothing") {
  auto runner = load(tiny_options());
  const auto tokens = some_tokens(20, runner->info());
  prefill(*runner, 0, tokens, 0, 10);
  CHECK(runner->forward(std::vector<batch_token>{
            {1, static_cast<token_id>(runner->info().vocabulary), 0, true}}) ==
        forward_status::failed);
  CHECK(runner->forward(std::vector<batch_token>{{1, -7, 0, true}}) == forward_status::failed);
  CHECK(runner->forward(chunk(2, some_tokens(500, runner->info()), 0, 500)) ==
        forward_status::failed);  // more than a step
  CHECK(runner->truth().used_cells == 10);
}

}  // namespace
}  // namespace troupe::engine
