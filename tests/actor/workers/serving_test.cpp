// Requests through hub, router and workers: answers are right, whoever computes them, and nothing
// is held afterwards.

#include "tests/actor/workers/fleet.hpp"

using namespace troupe;
using namespace troupe::test;

TEST_CASE("a worker of role both answers, and holds nothing afterwards") {
  fleet f;
  f.add("both/p/a.0", 1, msg::Role::BOTH);
  auto x = f.ask({});
  f.finish({x.a});
  REQUIRE(x.a->end);
  CHECK(x.a->accepted == 1);
  CHECK_FALSE(x.a->too_early);
  CHECK(x.a->end->completion_tokens == 24);
  CHECK(x.a->text[{0, 0}].size() == 24);
  CHECK_THAT(f.hub.front->timeline_json(x.name),
             Catch::Contains("\"plan\":\"local\"") && Catch::Contains("\"finish\":\"length\""));
  f.check_all_idle();
}

TEST_CASE("prefill and decode apart give the very answer of one worker, and tell of the transfer") {
  for (const std::size_t length : {1U, 2U, 63U, 64U, 65U, 300U, 1'500U}) {
    INFO(length);
    fleet::wish w;
    w.prompt = std::string(length, 'q');
    fleet f;
    auto& p = f.add("prefill/p/a.0", 1, msg::Role::PREFILL);
    auto& d = f.add("decode/p/a.0", 2, msg::Role::DECODE);
    auto x = f.ask(w);
    f.finish({x.a});
    REQUIRE(x.a->end);
    CHECK_FALSE(x.a->too_early);
    CHECK(x.a->ids == reference(w)->ids);
    const auto told = f.hub.front->timeline_json(x.name);
    CHECK_THAT(told, Catch::Contains("\"plan\":\"full\"") && Catch::Contains(p.name) &&
                         Catch::Contains(d.name));
    const auto until = x.a->end->prompt_tokens - 1;
    CHECK_THAT(told, Catch::Contains("\"from_token\":0,\"to_token\":" + std::to_string(until)));
    // Prefill's own counters: all tokens, and no decode worker that computes in secret.
    CHECK(p.hand_over->read_gauges().wire.sent_bytes >= until * p.host->info().kv_bytes_per_token);
    CHECK(d.host->engine().gauges().prefilled == 0);
    f.check_all_idle();
  }
}

TEST_CASE("the second turn transfers only what decode lacks") {
  fleet f;
  auto& p = f.add("prefill/p/a.0", 1, msg::Role::PREFILL);
  f.add("decode/p/a.0", 2, msg::Role::DECODE);
  fleet::wish w;
  w.prompt = std::string(1'024, 's');
  auto first = f.answered(w);
  REQUIRE(first->end);
  const auto sent = p.hand_over->read_gauges().wire.sent_bytes;
  f.advance(2s);
  w.prompt += first->text[{0, 0}] + std::string(400, 't');
  auto x = f.ask(w);
  f.finish({x.a});
  REQUIRE(x.a->end);
  const auto told = f.hub.front->timeline_json(x.name);
  INFO(told);
  CHECK_THAT(told, Catch::Contains("\"plan\":\"fromPosition\""));
  CHECK(p.hand_over->read_gauges().wire.sent_bytes - sent < sent / 2);
  CHECK(x.a->end->cached_tokens > 1'000);
  CHECK(x.a->ids == reference(w)->ids);
  f.check_all_idle();
}

TEST_CASE("several choices, each as one worker would have it") {
  fleet::wish w;
  w.choices = 3;
  fleet f;
  f.add("prefill/p/a.0", 1, msg::Role::PREFILL);
  f.add("decode/p/a.0", 2, msg::Role::DECODE);
  auto a = f.answered(w);
  REQUIRE(a->end);
  CHECK(a->ids.size() == 3);
  CHECK(a->ids == reference(w)->ids);
  f.check_all_idle();
}

TEST_CASE("a prompt longer than a part travels in parts") {
  engine_terms large;
  large.context = 700'000;
  large.kv_tokens = 800'000;
  large.step_tokens = 65'536;
  fleet f;
  f.add("both/p/a.0", 1, msg::Role::BOTH, large);
  fleet::wish w;
  for (int i = 0; i < 600'000; ++i) w.prompt.push_back(static_cast<char>('a' + i % 23));
  auto a = f.answered(w);
  REQUIRE(a->end);
  CHECK(a->end->prompt_tokens >= 600'000);
  CHECK(a->end->completion_tokens == 24);
  f.check_all_idle();
}

TEST_CASE("a prompt beyond the context is refused, by the parameter's name") {
  for (const bool apart : {false, true}) {
    fleet f;
    if (apart) {
      f.add("prefill/p/a.0", 1, msg::Role::PREFILL);
      f.add("decode/p/a.0", 2, msg::Role::DECODE);
    } else {
      f.add("both/p/a.0", 1, msg::Role::BOTH);
    }
    fleet::wish w;
    w.prompt = std::string(3'000, 'x');
    auto a = f.answered(w);
    REQUIRE(a->failure);
    CHECK(a->failure->http_status == 400);
    CHECK(a->failure->code == "context_length_exceeded");
    CHECK(a->failure->parameter == "prompt");
    w.prompt = "short";
    w.max_tokens = 5'000;
    a = f.answered(w);
    REQUIRE(a->failure);
    CHECK(a->failure->parameter == "max_tokens");
    CHECK(a->accepted == 0);
    f.check_all_idle();
  }
}

TEST_CASE("KV for four requests, sixteen that outgrow their prediction: all finish") {
  for (const bool apart : {false, true}) {
    INFO(apart);
    engine_terms narrow;
    narrow.kv_tokens = 1'200;
    narrow.context = 600;
    fleet f;
    if (apart) {
      f.add("prefill/p/a.0", 1, msg::Role::PREFILL, narrow);
      f.add("decode/p/a.0", 2, msg::Role::DECODE, narrow);
    } else {
      f.add("both/p/a.0", 1, msg::Role::BOTH, narrow);
    }
    std::vector<std::shared_ptr<answer>> all;
    std::vector<fleet::wish> wishes;
    for (int i = 0; i < 16; ++i) {
      fleet::wish w;
      w.prompt = "request " + std::to_string(i) + std::string(100, static_cast<char>('a' + i));
      w.max_tokens = 180;
      wishes.push_back(w);
      all.push_back(f.ask(w).a);
    }
    f.finish(all);
    for (int i = 0; i < 16; ++i) {
      INFO(i);
      REQUIRE(all[i]->end);
      CHECK(all[i]->ids == reference(wishes[i], narrow)->ids);
    }
    f.check_all_idle();
  }
}
