// A stream whose worker drains goes on elsewhere, as the request sees it.

#include "messages/job_codes.hpp"
#include "tests/actor/request/stage.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

struct move_stage : stage {
  client c = submit();
  job_key key = asked_once().key;

  /// A stream runs at `decode` and has three tokens.
  move_stage() {
    route(key, decode, &prefill);
    accept(key, prefill);
    prefill_done(key);
    tokens(key, decode, 0, {1, 2, 3});
    given(decode), given(prefill);
  }

  enum class says { wanted, moving, refused };
  void notice(says what, const job_key& of, const played_worker& by, std::uint32_t next = 2) {
    msg::draft<msg::MoveNotice> d;
    write(d->initKey(), of);
    d->setWorker(by.name);
    if (what == says::wanted) d->setWanted();
    if (what == says::moving) d->setMoving(next);
    if (what == says::refused) d->initRefused().setCode("cannot_move");
    to_hub(by.name, std::move(d));
  }
  job_key next() const { return {key.id, 0, 2}; }
  void place(const played_worker& to) { route(next(), to, &decode, msg::TransferPlan::MOVE); }
  /// What a worker was told of moves: "2 to decode/p/c.0".
  std::vector<std::string> told_to_move(const played_worker& w) {
    std::vector<std::string> all;
    for (auto& [from, e] : take_envelopes<msg::MoveJob>(w.actor)) {
      msg::view<msg::MoveJob> in{e};
      CHECK(msg::read(in->getKey()) == key);
      CHECK(in->getTransferToken().size() == 16);
      all.push_back(std::to_string(in->getNextAttempt()) + " to " +
                    in->getDecode().getName().cStr());
    }
    return all;
  }
};

}  // namespace

TEST_CASE_METHOD(move_stage, "a stream goes on elsewhere; its worker becomes the next attempt's "
                             "prefill leg, and no token is lost or repeated") {
  notice(says::wanted, key, decode);
  const auto asked = asked_once();
  CHECK(asked.key == next());
  CHECK(asked.move_from == decode.name);
  CHECK(asked.resumed == 3);
  tokens(key, decode, 3, {4});  // it goes on meanwhile
  place(second);
  CHECK(told_to_move(decode) == lines{"2 to decode/p/c.0"});
  CHECK(given(second).empty());
  tokens(key, decode, 4, {5});
  notice(says::moving, key, decode);
  CHECK(given(second) == lines{"decode from decode/p/b.0 0/2 resumed 5"});
  CHECK(given(decode).empty());
  CHECK(hub.jobs->size() == 2);
  tokens(key, decode, 5, {99});  // of the attempt before
  prefill_done(next(), 14, &decode);
  CHECK(hub.jobs->size() == 1);
  tokens(next(), second, 5, {6}, stop);
  CHECK(c.sink->ids[{0, 0}] == std::vector{1, 2, 3, 4, 5, 6});
  CHECK(c.sink->ends.size() == 1);
  check_all_released();
  CHECK(given(decode).empty());
  CHECK(given(second).empty());
  const auto json = hub.front->timeline_json(c.external_id);
  CHECK_THAT(json, Catch::Contains("\"plan\":\"move\"") && Catch::Contains("\"moved\":true"));
}

TEST_CASE_METHOD(move_stage, "without a place it stays, and is offered again") {
  notice(says::wanted, key, decode);
  const auto asked = asked_once();
  SECTION("refused") { refuse(asked.key, 503, "no_place_to_move"); }
  SECTION("the router is silent") { advance(request::route_timeout + 100ms); }
  SECTION("a router that does not know of moves gives an ordinary route") {
    route(asked.key, second, &prefill);
    CHECK(released().size() == 1);
    CHECK(given(second).empty());
    advance(request::route_timeout + 100ms);
  }
  CHECK(told_to_move(decode).empty());
  tokens(key, decode, 3, {4});
  notice(says::wanted, key, decode);
  CHECK(asked_once().key == next());
  tokens(key, decode, 4, {5}, stop);
  CHECK(c.sink->ids[{0, 0}] == std::vector{1, 2, 3, 4, 5});
  place(second);  // too late
  CHECK(c.sink->ends.size() == 1);
  job_done(key, decode);
  check_all_released();
}

TEST_CASE_METHOD(move_stage, "a refusal that comes after another shard's place ends nothing") {
  notice(says::wanted, key, decode);
  const auto first = asked_once();
  advance(request::route_timeout + 100ms);
  notice(says::wanted, key, decode);
  CHECK(asked_once().key == first.key);
  place(second);
  notice(says::moving, key, decode);
  refuse(first.key, 503, "no_place_to_move");
  CHECK(hub.jobs->size() == 2);
  CHECK(asked().empty());
  prefill_done(next(), 14, &decode);
  tokens(next(), second, 3, {4}, stop);
  CHECK(c.sink->ids[{0, 0}] == std::vector{1, 2, 3, 4});
  check_all_released();
}

TEST_CASE_METHOD(move_stage, "the worker may refuse after all: the stream goes on there") {
  notice(says::wanted, key, decode);
  asked_once();
  place(second);
  notice(says::refused, key, decode);
  CHECK(released().size() == 1);
  CHECK(hub.jobs->size() == 1);
  CHECK(given(decode).empty());
  tokens(key, decode, 3, {4}, stop);
  CHECK(c.sink->ends.size() == 1);
  check_all_released();
  CHECK(given(second).empty());
}

TEST_CASE_METHOD(move_stage,
                 "the worker never heard of the move: the stream can be offered again") {
  notice(says::wanted, key, decode);
  asked_once();
  place(second);
  bad_end<msg::JobFailed>(next(), decode, 503, msg::job_lost, true);
  CHECK(released().size() == 1);
  CHECK(hub.jobs->size() == 1);
  tokens(key, decode, 3, {4});
  notice(says::wanted, key, decode);
  const auto again = asked_once();
  CHECK(again.move_from == decode.name);
}

TEST_CASE_METHOD(move_stage, "it ends by itself while its move is arranged") {
  notice(says::wanted, key, decode);
  asked_once();
  place(second);
  told_to_move(decode);
  tokens(key, decode, 3, {4}, stop);
  CHECK(c.sink->ends.size() == 1);
  notice(says::moving, key, decode);
  CHECK(given(second).empty());
  CHECK(given(decode) == lines{"cancel 0/2"});
  check_all_released();
}

TEST_CASE_METHOD(move_stage,
                 "the client goes away while the stream leaves: the worker hears of both names") {
  notice(says::wanted, key, decode);
  asked_once();
  place(second);
  told_to_move(decode);
  hub.front->cancel(c.id, "gone");
  run();
  auto cancels = given(decode);
  std::sort(cancels.begin(), cancels.end());
  CHECK(cancels == lines{"cancel 0/1", "cancel 0/2"});
  check_all_released();
}

TEST_CASE_METHOD(move_stage, "a move that fails is repeated as any other attempt") {
  notice(says::wanted, key, decode);
  asked_once();
  place(second);
  told_to_move(decode);
  SECTION("the worker that it leaves dies before it has let go") {
    now_is(decode, msg::EntryState::STARTING, decode.generation);
    CHECK(given(second).empty());
  }
  SECTION("after that") {
    notice(says::moving, key, decode);
    given(second);
    now_is(decode, msg::EntryState::STARTING, decode.generation);
    CHECK(given(second) == lines{"cancel 0/2"});
  }
  SECTION("the worker that it goes to dies") {
    notice(says::moving, key, decode);
    given(second);
    now_is(second, msg::EntryState::STARTING, second.generation);
    CHECK(given(decode) == lines{"cancel 0/2"});
  }
  SECTION("the one that it was to go to is gone before it has let go") {
    now_is(second, msg::EntryState::STARTING, second.generation);
    notice(says::moving, key, decode);
    CHECK(given(decode) == lines{"cancel 0/2"});
    advance(1s);
  }
  SECTION("the KV does not come over") {
    notice(says::moving, key, decode);
    bad_end<msg::JobFailed>(next(), second, 503, "transfer_timeout", true);
  }
  const auto again = asked_once();
  CHECK(again.resumed == 3);
  CHECK(again.move_from.empty());
  route(again.key, both);
  tokens(again.key, both, 3, {4}, stop);
  CHECK(c.sink->ids[{0, 0}] == std::vector{1, 2, 3, 4});
  CHECK(c.sink->ends.size() == 1);
  check_all_released();
}

TEST_CASE_METHOD(move_stage,
                 "a late word about a move is not taken for one about the next attempt") {
  notice(says::wanted, key, decode);
  asked_once();
  bad_end<msg::JobFailed>(key, decode, 503, "kv_exhausted", true);
  const auto again = asked_once();
  CHECK(again.key.attempt > next().attempt);
  SECTION("there was no place") {
    refuse(next(), 503, "no_place_to_move");
    advance(1s);
    CHECK(asked().empty());
    route(again.key, second, &prefill);
    tokens(again.key, second, 3, {4}, stop);
    CHECK(c.sink->ends.size() == 1);
    prefill_done(again.key);
    check_all_released();
  }
  SECTION("there was one, and the router never answers the question that counts") {
    place(second);
    CHECK(released().size() == 2);
    advance(request::route_timeout + request::route_retry_pause + 100ms);
    CHECK(asked_once().key.attempt > again.key.attempt);
  }
}

TEST_CASE_METHOD(stage, "what cannot move is not asked for a place") {
  auto wanted = [&](const job_key& key, const played_worker& by) {
    msg::draft<msg::MoveNotice> d;
    write(d->initKey(), key);
    d->setWorker(by.name);
    d->setWanted();
    to_hub(by.name, std::move(d));
  };
  SECTION("several choices") {
    wish w;
    w.choices = 2;
    submit(w);
    const auto key = asked_once().key;
    route(key, both);
    accept(key, both);
    wanted(key, both);
  }
  SECTION("not accepted yet") {
    submit();
    const auto key = asked_once().key;
    route(key, both);
    wanted(key, both);
  }
  SECTION("another worker's") {
    submit();
    const auto key = asked_once().key;
    route(key, both);
    accept(key, both);
    wanted(key, second);
    wanted({key.id, 0, 7}, both);
  }
  CHECK(asked().empty());
}
