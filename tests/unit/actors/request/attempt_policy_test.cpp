#include "actors/request/attempt_policy.hpp"

#include <catch2/catch.hpp>

using namespace troupe;
using namespace troupe::request;
using namespace std::chrono_literals;

namespace {

using names = std::vector<std::string>;

ended_attempt ended(attempt_end how, const std::string& code = "x", int status = 503) {
  ended_attempt e;
  e.how = how;
  e.retryable = true;
  e.worker = "decode/p/b.0";
  e.prefill = "prefill/p/a.0";
  e.decode = "decode/p/b.0";
  e.why.http_status = status;
  e.why.code = code;
  return e;
}

const attempt_end all_ends[] = {attempt_end::router_silent,  attempt_end::route_refused,
                                attempt_end::worker_unknown, attempt_end::worker_gone,
                                attempt_end::job_ended,      attempt_end::stream_broken};

}  // namespace

TEST_CASE("of a request that the client has heard nothing of the last attempt is not repeated") {
  for (auto how : all_ends) {
    if (how == attempt_end::route_refused) continue;  // told at once
    auto e = ended(how);
    e.number = attempts_max - 1;
    CHECK(decide(e).again);
    e.number = attempts_max;
    CHECK_FALSE(decide(e).again);
  }
}

TEST_CASE("an accepted stream is tried until its deadline, with longer and longer pauses") {
  for (auto how : all_ends) {
    auto e = ended(how);
    e.client_reads = true;
    auto before = 0ms;
    for (e.number = attempts_max; e.number < attempts_max + 20; ++e.number) {
      const auto d = decide(e);
      CHECK(d.again);
      CHECK(d.pause >= std::max(before, route_retry_pause));
      before = d.pause;
    }
    CHECK(before == route_retry_pause * (1U << route_retry_doublings_max));
  }
}

TEST_CASE("that one shard knows nobody is no failure: another one is asked at once") {
  auto e = ended(attempt_end::shard_refused);
  e.number = attempts_max + 100;
  CHECK(decide(e).again);
  CHECK(decide(e).pause == 0ms);
  CHECK(decide(e).exclude.empty());
  CHECK_FALSE(is_counted(e.how));
  CHECK_FALSE(is_repetition(e.how));
}

TEST_CASE("waiting to be tried alone is no failure, however often it takes") {
  auto e = ended(attempt_end::quarantine_full);
  e.number = attempts_max + 100;
  CHECK(decide(e).again);
  CHECK(decide(e).exclude.empty());
  CHECK(decide(e).pause == quarantine_retry_pause);
  e.how = attempt_end::under_suspicion;
  CHECK(decide(e).again);
  CHECK(decide(e).pause == 0ms);
  CHECK_FALSE(is_counted(attempt_end::quarantine_full));
  CHECK_FALSE(is_counted(attempt_end::under_suspicion));
  CHECK(is_counted(attempt_end::worker_gone));
}

TEST_CASE("only what a worker has had costs the node's budget of repetitions") {
  for (auto how : {attempt_end::worker_gone, attempt_end::job_ended, attempt_end::stream_broken,
                   attempt_end::worker_unknown})
    CHECK(is_repetition(how));
  for (auto how : {attempt_end::route_refused, attempt_end::router_silent,
                   attempt_end::quarantine_full, attempt_end::under_suspicion})
    CHECK_FALSE(is_repetition(how));
}

TEST_CASE("a worker that failed, broke its stream or is gone is avoided, at once") {
  for (auto how : {attempt_end::job_ended, attempt_end::stream_broken, attempt_end::worker_gone}) {
    const auto d = decide(ended(how, "kv_exhausted"));
    CHECK(d.again);
    CHECK(d.pause == 0ms);
    CHECK(d.exclude == names{"decode/p/b.0"});
  }
}

TEST_CASE("what a worker says to be final ends the request") {
  auto e = ended(attempt_end::job_ended, "context_length_exceeded", 400);
  e.retryable = false;
  CHECK_FALSE(decide(e).again);
}

TEST_CASE("of a failed transfer both workers are avoided, whoever told of it") {
  for (const auto* code :
       {"transfer_timeout", "peer_failed", "hand_over_protocol", "kv_layout_mismatch",
        "too_many_hand_overs", "peer_left", "no_transfer_buffer"}) {
    auto e = ended(attempt_end::job_ended, code);
    for (const auto* teller : {"prefill/p/a.0", "decode/p/b.0"}) {
      e.worker = teller;
      CHECK(decide(e).exclude == names{"prefill/p/a.0", "decode/p/b.0"});
    }
    // One that works alone has nobody to share it with.
    e.prefill.clear();
    e.worker = "decode/p/b.0";
    CHECK(decide(e).exclude == names{"decode/p/b.0"});
  }
}

TEST_CASE("where decode finds no numbers they may have come from prefill: both are avoided") {
  auto e = ended(attempt_end::job_ended, "garbage_output");
  e.worker = e.decode;
  CHECK(decide(e).exclude == names{"prefill/p/a.0", "decode/p/b.0"});
  e.worker = e.prefill;
  CHECK(decide(e).exclude == names{"prefill/p/a.0"});
  e.prefill.clear();
  e.worker = e.decode;
  CHECK(decide(e).exclude == names{"decode/p/b.0"});
}

TEST_CASE("a new request is told at once that nobody can serve it; a stream waits, longer each "
          "time") {
  auto e = ended(attempt_end::route_refused, "no_ready_worker");
  CHECK_FALSE(decide(e).again);
  e.client_reads = true;
  auto before = 0ms;
  for (e.number = 1; e.number <= route_retry_doublings_max; ++e.number) {
    const auto d = decide(e);
    CHECK(d.again);
    CHECK(d.exclude.empty());
    CHECK(d.pause > before);
    before = d.pause;
  }
  CHECK(decide(e).pause == before);
  e.why.http_status = 404;
  CHECK_FALSE(decide(e).again);
}

TEST_CASE("a new request waits, too, for shards that don't see what its own node does") {
  auto e = ended(attempt_end::route_refused, "no_ready_worker");
  e.seen_here = true;
  CHECK(decide(e).again);
  CHECK(decide(e).pause > 0ms);
  e.number = attempts_max;
  CHECK_FALSE(decide(e).again);
}

TEST_CASE("one that was avoided and chosen all the same is given time") {
  // How it can fail: six attempts are over within milliseconds of a drain.
  auto e = ended(attempt_end::job_ended, "draining");
  e.avoided = true;
  CHECK(decide(e).pause == route_retry_pause);
  CHECK(decide(e).exclude == names{"decode/p/b.0"});
  e.retryable = false;
  CHECK_FALSE(decide(e).again);
}

TEST_CASE("a stream whose engines were all given up waits for a while, and is told then") {
  auto e = ended(attempt_end::route_refused, "engines_given_up");
  e.client_reads = true;
  e.hopeless = hopeless_max - 1ms;
  CHECK(decide(e).again);
  e.hopeless = hopeless_max;
  CHECK_FALSE(decide(e).again);
}

TEST_CASE("a silent router blames no worker, and is given a pause") {
  const auto d = decide(ended(attempt_end::router_silent));
  CHECK(d.again);
  CHECK(d.exclude.empty());
  CHECK(d.pause == route_retry_pause);
}

TEST_CASE("a worker that the router knows and this node does not is avoided, after a pause") {
  const auto d = decide(ended(attempt_end::worker_unknown));
  CHECK(d.again);
  CHECK(d.exclude == names{"decode/p/b.0"});
  CHECK(d.pause == route_retry_pause);
  auto nameless = ended(attempt_end::worker_unknown);
  nameless.worker.clear();
  CHECK(decide(nameless).exclude.empty());
}
