// One worker under a requester that the test plays: leases, deadlines, fences, limits, commands.

#include "actors/health/probe.hpp"
#include "gpu/engine/job_cost_wire.hpp"
#include "tests/actor/workers/fleet.hpp"
#include "tests/support/little_memory.hpp"
#include "tests/support/unreadable.hpp"

#include <new>

using namespace troupe;
using namespace troupe::test;

namespace {

struct alone : fleet {
  caf::actor requester = capture();
  machine& m = add("both/p/a.0", 3, msg::Role::BOTH);
  alone() { office->bind("requests/test", 0, requester); }

  struct terms {
    std::uint64_t request = 1;
    std::uint32_t attempt = 1;
    std::uint64_t generation = 3;
    std::uint32_t lease_ms = 3'000;
    std::uint32_t deadline_ms = 60'000;
    std::uint32_t max_tokens = 2'000'000'000;
    std::size_t token_bytes = 16;
    bool garbage = false;
    bool from_prefill = false;
  };
  void give() { give(terms{}); }
  void give(const terms& t) {
    capnp::MallocMessageBuilder b;
    auto c = b.initRoot<msg::Completion>();
    c.setModel("m");
    c.getPrompt().setText("hello");
    c.setMaxTokens(std::min(t.max_tokens, 2'000U));
    c.initSampling();
    auto words = capnp::messageToFlatArray(b);
    if (t.garbage)
      for (auto& byte : words.asBytes()) byte = 0xA5;
    msg::draft<msg::DecodeJob> d{4'096};
    auto job = d->initJob();
    auto key = job.initKey();
    key.setRequestLow(t.request);
    key.setAttempt(t.attempt);
    job.setReplyTo("requests/test");
    job.initContent().setBytes(static_cast<std::uint32_t>(words.asBytes().size()));
    job.getContent().setInline(words.asBytes());
    job.setDeadlineMs(t.deadline_ms);
    job.setLeaseMs(t.lease_ms);
    job.initTransferToken(static_cast<unsigned>(t.token_bytes));
    if (t.from_prefill)
      d->getSource().initPrefill().setName("prefill/p/a.0");
    else
      d->getSource().setSelf();
    office->send({m.name, t.generation}, {"requests/test", 0}, *std::move(d).freeze());
    run();
  }
  template <class Schema>
  std::vector<std::string> failures() {
    std::vector<std::string> all;
    for (auto& [from, e] : take_envelopes<Schema>(requester)) {
      msg::view<Schema> in{e};
      all.push_back(std::string{in->getFailure().getCode().cStr()} +
                    (in->getFailure().getRetryable() ? " retryable" : ""));
    }
    return all;
  }
  /// So few steps that nothing ends.
  void work() { turns(5); }
};

using lines = std::vector<std::string>;

}  // namespace

TEST_CASE_METHOD(alone, "a job whose lease nobody renews is freed by the worker itself") {
  give();
  work();
  advance(2'900ms);
  CHECK(failures<msg::JobFailed>().empty());
  advance(300ms);
  CHECK(failures<msg::JobFailed>() == lines{"lease_lapsed retryable"});
  check_all_idle();
}

TEST_CASE_METHOD(alone, "a renewed lease holds") {
  give();
  for (int second = 0; second < 6; ++second) {
    work();
    msg::draft<msg::RenewLeases> d;
    auto key = d->initKeys(1)[0];
    key.setRequestLow(1);
    key.setAttempt(1);
    office->send({m.name, 0}, {"requests/test", 0}, *std::move(d).freeze());
    advance(1s);
  }
  CHECK(failures<msg::JobFailed>().empty());
  CHECK(m.host->routes() == 1);
}

TEST_CASE_METHOD(alone, "who renews a job that is not here is told that it was lost") {
  give();
  work();
  msg::draft<msg::RenewLeases> d;
  auto keys = d->initKeys(2);
  for (unsigned i = 0; i < 2; ++i) {
    keys[i].setRequestLow(1);
    keys[i].setAttempt(1 + i);
  }
  office->send({m.name, 0}, {"requests/test", 0}, *std::move(d).freeze());
  run();
  const auto told = take_envelopes<msg::JobFailed>(requester);
  REQUIRE(told.size() == 1);
  msg::view<msg::JobFailed> in{told[0].second};
  CHECK(in->getKey().getAttempt() == 2);
  CHECK(std::string(in->getFailure().getCode().cStr()) == "job_lost");
  CHECK(in->getFailure().getRetryable());
}

TEST_CASE_METHOD(alone, "a job ends at its deadline") {
  terms t;
  t.deadline_ms = 500;
  give(t);
  work();
  advance(700ms);
  CHECK(failures<msg::JobFailed>() == lines{"deadline_exceeded"});
  check_all_idle();
}

TEST_CASE_METHOD(alone,
                 "a worker that had nothing to do looks at its first job's deadline at once") {
  // Wherever it stands between two of the looks that it takes without jobs.
  for (terms t; t.attempt <= 10; ++t.attempt) {
    advance(workers::idle_watch_interval + t.attempt * workers::watch_interval);
    t.deadline_ms = 50;
    give(t);
    work();
    advance(2 * workers::watch_interval);
    CHECK(failures<msg::JobFailed>() == lines{"deadline_exceeded"});
    check_all_idle();
  }
}

TEST_CASE_METHOD(alone, "a job for another incarnation never arrives") {
  terms t;
  t.generation = 2;
  give(t);
  CHECK(m.host->routes() == 0);
  CHECK(office->counters().stale_generation == 1);
}

TEST_CASE_METHOD(alone, "the same attempt twice counts once, another attempt is another job") {
  give();
  give();
  CHECK(m.host->routes() == 1);
  terms t;
  t.attempt = 2;
  give(t);
  CHECK(m.host->routes() == 2);
}

TEST_CASE_METHOD(alone, "a cancel ends that attempt only") {
  give();
  terms t;
  t.attempt = 2;
  give(t);
  work();
  msg::draft<msg::CancelJobs> d;
  auto key = d->initKeys(1)[0];
  key.setRequestLow(1);
  key.setAttempt(1);
  office->send({m.name, 0}, {"requests/test", 0}, *std::move(d).freeze());
  turns(2);
  CHECK(m.host->routes() == 1);
  take_envelopes<msg::TokenBatch>(requester);
  work();
  auto batches = take_envelopes<msg::TokenBatch>(requester);
  REQUIRE_FALSE(batches.empty());
  for (auto& [from, e] : batches) {
    msg::view<msg::TokenBatch> batch{e};
    for (auto s : batch->getStreams()) CHECK(s.getKey().getAttempt() == 2);
  }
}

// How this can fail: a job's cost is told by nobody, for the wrong job, or only while all goes
// well.
TEST_CASE_METHOD(alone, "with its end a job tells what it has cost, whatever that is") {
  const auto told = [&] {
    std::vector<engine::job_cost> all;
    for (auto& [from, e] : take_envelopes<msg::JobDone>(requester)) {
      msg::view<msg::JobDone> in{e};
      CHECK(in->getKey().getRequestLow() == 1);
      REQUIRE(in->hasCost());
      all.push_back(engine::read(in->getCost()));
    }
    return all;
  };
  SECTION("it is done") {
    terms t;
    t.max_tokens = 3;
    give(t);
    settle();
    const auto done = told();
    REQUIRE(done.size() == 1);
    CHECK(done[0].sampled == 3);
    CHECK(done[0].computed > 0);
    CHECK(done[0].step_shares == Approx(3));
    int with_cost = 0;
    for (auto& [from, e] : take_envelopes<msg::TokenBatch>(requester)) {
      msg::view<msg::TokenBatch> batch{e};
      for (auto s : batch->getStreams()) {
        if (!s.hasCost()) continue;
        ++with_cost;
        CHECK(s.getFinish() != msg::FinishReason::NONE);
        CHECK(engine::read(s.getCost()) == done[0]);
      }
    }
    CHECK(with_cost == 1);
  }
  const auto told_as_the_engine_lets_go = [&] {
    turns(2);
    const auto done = told();
    REQUIRE(done.size() == 1);
    CHECK(done[0].sampled > 0);
  };
  SECTION("it is cancelled") {
    give();
    work();
    msg::draft<msg::CancelJobs> d;
    auto key = d->initKeys(1)[0];
    key.setRequestLow(1);
    key.setAttempt(1);
    office->send({m.name, 0}, {"requests/test", 0}, *std::move(d).freeze());
    run();
    CHECK(told().empty());  // the engine still has it
    told_as_the_engine_lets_go();
  }
  SECTION("it fails, and the engine lets go later") {
    give();
    work();
    advance(3'200ms);
    CHECK(told().empty());
    for (auto& [from, e] : take_envelopes<msg::JobFailed>(requester))
      CHECK_FALSE(msg::view<msg::JobFailed> { e } -> hasCost());
    told_as_the_engine_lets_go();
  }
  SECTION("its host gives it up, and the engine lets go later") {
    give();
    work();
    workers::engine_events x;
    x.given_up.push_back({1, {"answer_piece_too_large", "", {}}, false});
    caf::anon_send(m.actor, std::move(x));
    run();
    auto failed = take_envelopes<msg::JobFailed>(requester);
    REQUIRE(failed.size() == 1);
    CHECK_FALSE(msg::view<msg::JobFailed> { failed[0].second } -> hasCost());
    told_as_the_engine_lets_go();
  }
  SECTION("the engine fails it") {
    m.garbage = true;
    give();
    turns(10);
    auto failed = take_envelopes<msg::JobFailed>(requester);
    REQUIRE(failed.size() == 1);
    CHECK(engine::read(msg::view<msg::JobFailed> { failed[0].second } -> getCost()).computed > 0);
    CHECK(told().empty());
  }
  SECTION("it is refused") {
    terms t;
    t.garbage = true;
    give(t);
    settle();
    CHECK(failures<msg::Rejected>().size() == 1);
    CHECK(told().empty());
  }
}

TEST_CASE_METHOD(alone, "what cannot be read or has no token is refused, and holds nothing") {
  terms t;
  t.garbage = true;
  give(t);
  settle();
  CHECK(failures<msg::Rejected>() == lines{"content_malformed"});
  t = {};
  t.token_bytes = 3;
  give(t);
  CHECK(failures<msg::Rejected>() == lines{"bad_token"});
  t = {};
  t.from_prefill = true;
  give(t);
  CHECK(failures<msg::Rejected>() == lines{"wrong_role retryable"});
  check_all_idle();
}

namespace {

/// A job whose prompt comes in parts.
struct in_parts : alone {
  in_parts() {
    msg::draft<msg::DecodeJob> d;
    auto job = d->initJob();
    write(job.initKey());
    job.setReplyTo("requests/test");
    job.initContent().setBytes(800'000);
    job.setLeaseMs(3'000);
    job.setDeadlineMs(60'000);
    job.initTransferToken(16);
    d->getSource().setSelf();
    office->send({m.name, 0}, {"requests/test", 0}, *std::move(d).freeze());
    run();
  }
  static void write(msg::JobKey::Builder key) {
    key.setRequestLow(9);
    key.setAttempt(1);
  }
  void part(std::uint32_t offset, unsigned bytes) {
    msg::draft<msg::PromptPart> p{bytes + 256};
    write(p->initKey());
    p->setOffset(offset);
    p->initBytes(bytes);
    office->send({m.name, 0}, {"requests/test", 0}, *std::move(p).freeze());
    run();
  }
  void renewed_for(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      msg::draft<msg::RenewLeases> d;
      write(d->initKeys(1)[0]);
      office->send({m.name, 0}, {"requests/test", 0}, *std::move(d).freeze());
      advance(1s);
    }
  }
};

}  // namespace

TEST_CASE_METHOD(in_parts,
                 "an audit tells of prompts that come in parts, and of the transport's buffers") {
  auto& apart = add("prefill/p/a.0", 5, msg::Role::PREFILL);
  part(0, 200'000);
  const auto audit = [&](const machine& who) {
    msg::draft<msg::EngineCommand> d;
    d->setAudit();
    office->send({who.name, 0}, {"requests/test", 0}, *std::move(d).freeze());
    run();
    who.host->step();
    run();
    auto all = take_envelopes<msg::Audit>(requester);
    REQUIRE(all.size() == 1);
    return all[0].second;
  };
  CHECK(msg::view<msg::Audit> { audit(m) } -> getAssemblingBytes() == 800'000);
  const auto held = apart.hand_over->acquire_piece_buffer({}, 16);
  CHECK(msg::view<msg::Audit> { audit(apart) } -> getBuffers() == 4);
  CHECK(msg::view<msg::Audit> { audit(apart) } -> getBuffersFree() == 4);
}

TEST_CASE_METHOD(in_parts, "parts out of order end the job") {
  part(0, 200'000);
  auto credits = take_envelopes<msg::PartCredit>(requester);
  REQUIRE(credits.size() == 1);
  CHECK(msg::view<msg::PartCredit> { credits[0].second } -> getReceived() == 200'000);
  part(300'000, 1'000);
  CHECK(failures<msg::Rejected>() == lines{"content_malformed retryable"});
  part(200'000, 1'000);
  CHECK(take_envelopes<msg::PartCredit>(requester).empty());
  check_all_idle();
}

TEST_CASE_METHOD(in_parts, "a part that does not come is not waited for until the deadline") {
  for (unsigned i = 0; i < 3; ++i) {
    part(i * 200'000, 200'000);
    renewed_for(8);
    CHECK(failures<msg::Rejected>().empty());
  }
  renewed_for(3);
  CHECK(failures<msg::Rejected>() == lines{"part_lost retryable"});
  part(600'000, 200'000);
  check_all_idle();
}

TEST_CASE_METHOD(alone, "a stop ends all jobs as retryable, and then the worker") {
  give();
  work();
  caf::anon_send(m.actor, workers::stop_worker{});
  run();
  CHECK(failures<msg::JobFailed>() == lines{"worker_stopping retryable"});
  settle();
  advance(1s);
  CHECK(m.stopped);
}

TEST_CASE_METHOD(alone, "an audit is answered from the engine's books") {
  give();
  work();
  msg::draft<msg::EngineCommand> d;
  d->setAudit();
  office->send({m.name, 0}, {"requests/test", 0}, *std::move(d).freeze());
  run();
  m.host->step();
  run();
  auto audits = take_envelopes<msg::Audit>(requester);
  REQUIRE(audits.size() == 1);
  msg::view<msg::Audit> a{audits[0].second};
  CHECK(a->getGeneration() == 3);
  CHECK(a->getJobs() == 1);
  CHECK(a->getReferenced() > 0);
  CHECK(a->getLedgerTokens() == a->getEngineCells());
  CHECK(a->getMismatches().size() == 0);
}

TEST_CASE_METHOD(alone,
                 "what tokenisers do not come back with is ended as retryable; the rest goes on") {
  give({.request = 1, .lease_ms = 60'000});
  work();
  give({.request = 2, .lease_ms = 60'000});
  give({.request = 3, .lease_ms = 60'000});
  preparing = {1, 1, 5, 20ms, 600};
  for (int i = 0; i < 9; ++i) advance(1s);
  CHECK(failures<msg::JobFailed>().empty());
  for (int i = 0; i < 3; ++i) advance(1s);
  CHECK(failures<msg::JobFailed>() ==
        lines{"tokenisers_stuck retryable", "tokenisers_stuck retryable"});
  CHECK(m.host->routes() == 3);  // until the tokenisers let go
  preparing.sign = 6;
  advance(1s);
  give({.request = 4, .lease_ms = 60'000});
  for (int i = 0; i < 3; ++i) advance(1s);
  work();
  CHECK(failures<msg::JobFailed>().empty());
  CHECK(failures<msg::Rejected>().empty());
  CHECK(m.host->routes() == 2);
}

TEST_CASE_METHOD(alone, "a report counts prompts on their way to the engine, and their tokens") {
  const auto told = [&] {
    take_envelopes<msg::WorkerReport>(launcher);
    advance(1s);
    auto all = take_envelopes<msg::WorkerReport>(launcher);
    REQUIRE(all.size() == 1);
    msg::view<msg::WorkerReport> r{all[0].second};
    return std::vector<std::uint64_t>{r->getPreparing(), r->getUnprepared(), r->getQueuedTokens()};
  };
  CHECK(told() == std::vector<std::uint64_t>{0, 0, 0});
  give({.lease_ms = 60'000});
  preparing = {1, 6, 5, 20ms, 600};
  const auto waiting = told();
  CHECK(waiting[0] == 1);
  CHECK(waiting[1] == 6);
  CHECK(waiting[2] > 0);
  work();
  CHECK(told()[2] == 0);
}

TEST_CASE_METHOD(alone, "a malformed message is dropped, and the worker goes on") {
  auto garble = [&]<class Schema>(Schema*) {
    office->send({m.name, 0}, {"requests/test", 0}, unreadable<Schema>());
  };
#define GARBLE(Schema) garble(static_cast<msg::Schema*>(nullptr));
  TROUPE_ENVELOPE_SCHEMAS(GARBLE)
#undef GARBLE
  run();
  give();
  work();
  CHECK(m.host->routes() == 1);
}

TEST_CASE("a worker of any role answers a probe by itself, and counts it apart") {
  fleet f;
  const auto role = GENERATE(msg::Role::BOTH, msg::Role::PREFILL, msg::Role::DECODE);
  auto& m = f.add("w/p/a.0", 3, role);
  auto asker = f.capture();
  f.office->bind("watchdog/a", 0, asker);
  auto probe = [&](std::uint64_t number) {
    f.office->send({m.name, 3}, {"watchdog/a", 0},
                   health::make_probe({{5, number}, 0, 1}, "watchdog/a", 10s));
    f.run();
    f.turns(5);
    std::size_t tokens = 0;
    for (auto& [from, e] : f.take_envelopes<msg::TokenBatch>(asker)) {
      msg::view<msg::TokenBatch> in{e};
      for (auto s : in->getStreams()) tokens += s.getIds().size();
    }
    return tokens;
  };
  CHECK(probe(1) == 1);
  CHECK(m.host->engine().gauges().probes == 1);
  CHECK(m.host->engine().gauges().sampled == 0);
  CHECK(f.take_envelopes<msg::JobDone>(asker).size() == 1);
  CHECK(probe(2) == 1);
  CHECK(m.host->routes() == 0);
}

TEST_CASE("an engine names what it works at while it does, and nothing else") {
  fleet f;
  auto& m = f.add("both/p/a.0", 3, msg::Role::BOTH);
  std::set<request::request_id> named;
  std::size_t most = 0, passes = 0;
  m.in_pass = [&] {
    const auto now = m.board->read();
    REQUIRE(now);
    ++passes;
    most = std::max<std::size_t>(most, now->total);
    for (const auto& key : now->keys) named.insert(key.id);
  };
  std::vector<std::shared_ptr<answer>> all;
  std::set<request::request_id> asked;
  for (int i = 0; i < 3; ++i) {
    const auto x = f.ask({.prompt = "question " + std::to_string(i)});
    asked.insert(x.id);
    all.push_back(x.a);
  }
  f.finish(all);
  CHECK(passes > 10);
  CHECK(named == asked);
  CHECK(most == 3);
  CHECK_FALSE(m.board->read());
}

TEST_CASE_METHOD(alone, "a job that there is no memory for is refused, and the worker goes on") {
  on_offload = [] { throw std::bad_alloc{}; };
  give();
  CHECK(failures<msg::Rejected>() == lines{"not_prepared retryable"});
  CHECK_FALSE(m.board->read());
  on_offload = {};
  terms t;
  t.request = 2;
  give(t);
  work();
  CHECK(m.host->routes() == 1);
  CHECK_FALSE(take_envelopes<msg::TokenBatch>(requester).empty());
}

TEST_CASE_METHOD(alone, "a prompt that there is no memory for is refused, and the worker goes on") {
  if (!memory_can_be_little) return;
  msg::draft<msg::DecodeJob> d{4'096};
  auto job = d->initJob();
  job.initKey().setRequestLow(1);
  job.setReplyTo("requests/test");
  job.initContent().setBytes(128U << 20U);  // in parts
  job.setDeadlineMs(60'000);
  job.setLeaseMs(3'000);
  job.initTransferToken(16);
  d->getSource().setSelf();
  auto e = *std::move(d).freeze();
  {
    const little_memory little{32U << 20U};
    office->send({m.name, 3}, {"requests/test", 0}, std::move(e));
    run();
  }
  CHECK(failures<msg::Rejected>() == lines{"not_prepared retryable"});
  check_all_idle();
}

TEST_CASE_METHOD(alone, "a job that ends the worker is named on the engine's board") {
  on_offload = [] { throw 1; };
  give();
  const auto named = m.board->read();
  REQUIRE(named);
  CHECK(named->total == 1);
  CHECK(named->keys.at(0).id.low == 1);
  m.alive = false;
}

TEST_CASE_METHOD(alone, "who is failed by the engine itself hears how many were in the same step") {
  for (std::uint64_t i = 1; i <= 3; ++i) {
    terms t;
    t.request = i;
    give(t);
  }
  work();
  m.garbage = true;
  turns(3);
  const auto told = take_envelopes<msg::JobFailed>(requester);
  REQUIRE(told.size() == 3);
  for (const auto& [from, e] : told) {
    msg::view<msg::JobFailed> in{e};
    CHECK(std::string{in->getFailure().getCode().cStr()} == "garbage_output");
    CHECK(in->getSuspects() == 3);
  }
  m.garbage = false;
  terms t;
  t.request = 4;
  t.lease_ms = 100;
  give(t);
  advance(1s);
  const auto lapsed = take_envelopes<msg::JobFailed>(requester);
  REQUIRE(lapsed.size() == 1);
  msg::view<msg::JobFailed> in{lapsed[0].second};
  CHECK(in->getSuspects() == 0);
}
