#include "actors/workers/token_batch.hpp"

#include <catch2/catch.hpp>

#include <memory>
#include <string>

using namespace troupe;
using namespace troupe::workers;

namespace {

routed_delta delta_of(std::uint64_t request, std::string text) {
  routed_delta d;
  d.first.key = {{1, request}, 2, 3};
  d.first.reply_to = "requests/h";
  d.second.text = std::move(text);
  return d;
}

std::vector<const routed_delta*> pointers(const std::vector<routed_delta>& all) {
  std::vector<const routed_delta*> p;
  for (const auto& d : all) p.push_back(&d);
  return p;
}

}  // namespace

TEST_CASE("a delta keeps all that it says") {
  const std::string text{"te\0xt", 5};  // a model may say anything
  auto d = delta_of(42, text);
  d.second.choice = 1;
  d.second.first_index = 7;
  d.second.ids = {10, 11};
  d.second.emitted_bytes = 99;
  d.second.reasoning = "because";
  d.second.tool_calls = {{3, "id", "name", "{}"}};
  d.second.logprobs = {{{10, std::string("\0\xff", 2), -0.5F}, {{12, "t", -1.0F}}}};
  d.second.why = engine::finish::tool_calls;
  const std::vector<routed_delta> all{d};
  const auto list = pointers(all);
  std::vector<troupe::engine::job_id> left_out;
  const auto batches = make_token_batches("decode/p/h.0", 5, list, left_out);
  REQUIRE(batches.size() == 1);
  msg::view<msg::TokenBatch> b{batches[0]};
  CHECK(std::string{b->getWorker().cStr()} == "decode/p/h.0");
  CHECK(b->getGeneration() == 5);
  REQUIRE(b->getStreams().size() == 1);
  auto s = b->getStreams()[0];
  CHECK(msg::read(s.getKey()) == msg::job_key{{1, 42}, 2, 3});
  CHECK(s.getChoice() == 1);
  CHECK(s.getFirstIndex() == 7);
  CHECK(s.getIds()[1] == 11);
  const std::string_view got{s.getText().begin(), s.getText().size()};
  CHECK(got == text);
  CHECK(s.getEmittedBytes() == 99);
  CHECK(s.getReasoning() == "because");
  CHECK(s.getToolCalls()[0].getIndex() == 3);
  CHECK(s.getToolCalls()[0].getArguments() == "{}");
  CHECK(s.getLogprobs()[0].getBytes().size() == 2);
  CHECK(s.getLogprobs()[0].getTop()[0].getId() == 12);
  CHECK(s.getFinish() == msg::FinishReason::TOOL_CALLS);
}

TEST_CASE("what a choice says in several deltas comes in one, and nothing changes its order") {
  auto at = [](std::uint64_t job, std::uint16_t choice, std::uint32_t index, std::string text) {
    auto d = delta_of(job, std::move(text));
    d.second.job = job;
    d.second.choice = choice;
    d.second.first_index = index;
    d.second.ids = {static_cast<engine::token_id>(index)};
    d.second.logprobs = {{{static_cast<engine::token_id>(index), "t", -1.0F}, {}}};
    d.second.emitted_bytes = 10 + index;
    return d;
  };
  std::vector<routed_delta> all{at(1, 0, 5, "a"), at(2, 0, 0, "x"), at(1, 1, 5, "b"),
                                at(1, 0, 6, "c"), at(2, 0, 1, "y"), at(1, 0, 7, "")};
  all.back().second.why = engine::finish::stop;
  all.back().second.stop_text = "END";
  all.back().second.cost = std::make_shared<engine::job_cost>();
  const auto one = joined(all);
  REQUIRE(one.size() == 3);
  const auto& first = one[0].second;
  CHECK(first.first_index == 5);
  CHECK(first.ids == std::vector<engine::token_id>{5, 6, 7});
  CHECK(first.logprobs.size() == 3);
  CHECK(first.text == "ac");
  CHECK(first.emitted_bytes == 17);
  CHECK(first.why == engine::finish::stop);
  CHECK(first.stop_text == "END");
  CHECK(first.cost);
  CHECK(one[0].first.key.id == msg::request_id{1, 1});
  CHECK(one[1].second.text == "xy");
  CHECK(one[2].second.choice == 1);

  SECTION("a hole stays one") { CHECK(joined({at(1, 0, 5, "a"), at(1, 0, 7, "b")}).size() == 2); }
  SECTION("what is thought after something was said, or calls a tool, comes after it") {
    auto thought = at(1, 0, 6, "");
    thought.second.reasoning = "hm";
    CHECK(joined({at(1, 0, 5, "a"), thought}).size() == 2);
    auto second_thought = at(1, 0, 7, "so");
    second_thought.second.reasoning = "m";
    const auto both = joined({thought, second_thought});
    REQUIRE(both.size() == 1);
    CHECK(both[0].second.reasoning == "hmm");
    CHECK(both[0].second.text == "so");
    auto call = at(1, 0, 6, "");
    call.second.tool_calls = {{0, "id", "name", "{}"}};
    CHECK(joined({at(1, 0, 5, "a"), call, at(1, 0, 7, "b")}).size() == 3);
  }
}

TEST_CASE("what does not fit one message is cut, in order and without a loss") {
  std::vector<routed_delta> all;
  for (std::uint64_t i = 0; i < 10; ++i) all.push_back(delta_of(i, std::string(300'000, 'x')));
  const auto list = pointers(all);
  std::vector<troupe::engine::job_id> left_out;
  const auto batches = make_token_batches("w", 1, list, left_out);
  CHECK(batches.size() >= 3);
  std::uint64_t next = 0;
  for (const auto& e : batches) {
    CHECK(e.body.byte_size() <= msg::message_bytes_max);
    for (auto s : msg::view<msg::TokenBatch> { e } -> getStreams())
      CHECK(s.getKey().getRequestLow() == next++);
  }
  CHECK(next == 10);
  CHECK(left_out.empty());
}

TEST_CASE("no deltas, no streams; one that never fits is left out alone") {
  std::vector<routed_delta> all;
  all.push_back(delta_of(1, "a"));
  all.push_back(delta_of(2, std::string(2U << 20U, 'x')));
  all.back().second.job = 77;
  all.push_back(delta_of(3, "c"));
  const auto list = pointers(all);
  std::vector<troupe::engine::job_id> left_out;
  std::vector<std::uint64_t> got;
  for (const auto& e : make_token_batches("w", 1, list, left_out))
    for (auto s : msg::view<msg::TokenBatch> { e } -> getStreams())
      got.push_back(s.getKey().getRequestLow());
  CHECK(got == std::vector<std::uint64_t>{1, 3});
  CHECK(left_out == std::vector<troupe::engine::job_id>{77});
}
