// Each checker finds what it is there for, and nothing where all is well. Records by hand.

#include "apps/sim/checkers.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace troupe;
using namespace troupe::sim;
using namespace std::chrono_literals;

namespace {

time_point second(int s) { return time_point{} + std::chrono::hours{1} + std::chrono::seconds{s}; }

std::size_t shape_with(bool refused) {
  const auto& all = catalogue();
  const auto i = std::find_if(all.begin(), all.end(), [&](const auto& s) {
    return s.refusal.empty() != refused && (refused || s.answer[0].ids.size() > 4);
  });
  REQUIRE(i != all.end());
  return static_cast<std::size_t>(i - all.begin());
}

/// A client that got what it asked for, from 10 s to 12 s.
std::shared_ptr<client_record> happy() {
  auto c = std::make_shared<client_record>();
  c->name = "r0";
  c->host = "b";
  c->plan.shape = shape_with(false);
  c->submitted = true;
  c->begun = second(10);
  c->ended = second(12);
  c->accepted = 1;
  c->endings = 1;
  c->got = catalogue()[c->plan.shape].answer;
  request::totals sum;
  for (const auto& x : c->got) sum.completion_tokens += static_cast<std::uint32_t>(x.ids.size());
  c->sum = sum;
  return c;
}

run_record with(std::shared_ptr<client_record> c) {
  run_record r;
  r.clients.push_back(std::move(c));
  r.restart_intensity = 3;
  r.restart_period = 60s;
  return r;
}

std::shared_ptr<client_record> failed(const std::string& code, time_point at = second(12)) {
  auto c = happy();
  c->sum.reset();
  c->ended = at;
  c->failure = request::failure{503, code, "", "", {}};
  return c;
}

done_fault fault(fault_kind k, int from, int until, std::vector<std::string> hosts = {"a", "b"}) {
  return {k, second(from), second(until), "x", std::move(hosts)};
}

bool only(const std::vector<finding>& all, const std::string& checker) {
  return !all.empty() &&
         std::all_of(all.begin(), all.end(), [&](const auto& f) { return f.checker == checker; });
}

}  // namespace

TEST_CASE("a request that went well is no finding") { CHECK(check_all(with(happy())).empty()); }

TEST_CASE("a request ends once, in time, and nothing is said out of turn") {
  auto broken = [](auto change) {
    auto c = happy();
    change(*c);
    return only(check_all(with(c)), "endings");
  };
  CHECK(broken([](auto& c) { c.endings = 2; }));
  CHECK(broken([](auto& c) { c.late_word = true; }));
  CHECK(broken([](auto& c) { c.early_delta = true; }));
  CHECK(broken([](auto& c) { c.accepted = 2; }));
  CHECK(broken([](auto& c) { c.endings = 0; }));
  CHECK(broken([](auto& c) { c.ended = c.begun + c.plan.timeout + 1s; }));
}

TEST_CASE("a node that stood still may be late by that time") {
  auto c = happy();
  c->ended = c->begun + c->plan.timeout + 3s;
  auto r = with(c);
  auto f = fault(fault_kind::freeze_node, 11, 15);
  f.victim = "b";
  r.faults.push_back(f);
  CHECK(check_endings(r).empty());
  r.faults.back().victim = "a";
  CHECK(only(check_endings(r), "endings"));
}

TEST_CASE("answers are those of an unfailed run") {
  auto broken = [](auto change) {
    auto c = happy();
    change(*c);
    return only(check_all(with(c)), "answers");
  };
  CHECK(broken([](auto& c) { c.index_gap = true; }));
  CHECK(broken([](auto& c) { c.got[0].ids[1] += 1; }));
  CHECK(broken([](auto& c) { c.got[0].text[0] = '?'; }));
  CHECK(broken([](auto& c) { c.got[0].ids.pop_back(); }));
  CHECK(broken([](auto& c) { c.got[0].why = msg::FinishReason::TOOL_CALLS; }));
  CHECK(broken([](auto& c) { c.sum->completion_tokens += 1; }));
  CHECK(broken([](auto& c) { c.plan.shape = shape_with(true); }));
}

TEST_CASE("whoever leaves has got the beginning of the answer") {
  auto c = happy();
  c->sum.reset();
  c->endings = 0;
  c->left = true;
  c->got[0].ids.resize(2);
  c->got[0].text.resize(1);
  CHECK(check_all(with(c)).empty());
  c->got[0].ids[1] += 1;
  CHECK(only(check_all(with(c)), "answers"));
}

TEST_CASE("what failed had a cause that nobody could mend") {
  CHECK(only(check_failures(with(failed("worker_lost"))), "failures"));
  CHECK(only(check_failures(with(failed("no_ready_worker"))), "failures"));
  auto r = with(failed("no_ready_worker"));
  r.no_capacity.push_back({"b", second(11), second(13)});
  CHECK(check_failures(r).empty());
  r.no_capacity.back() = {"b", second(20), second(30)};
  CHECK(only(check_failures(r), "failures"));

  r = with(failed("router_unavailable"));
  CHECK(only(check_failures(r), "failures"));
  r.router_hosts = {"c", "a"};
  r.faults.push_back(fault(fault_kind::kill_router, 9, 9, {"a"}));
  CHECK(only(check_failures(r), "failures"));  // the other shard was well
  r.faults.push_back(fault(fault_kind::lose_host, 9, 12, {"b"}));
  CHECK(only(check_failures(r), "failures"));  // no shard was there
  r.faults.push_back(fault(fault_kind::lose_host, 9, 12, {"c"}));
  CHECK(check_failures(r).empty());
  r.faults = {fault(fault_kind::cut_link, 9, 12, {"a", "c"})};
  CHECK(check_failures(r).empty());
  r.faults.back().hosts = {"a", "b"};  // the client's own host
  CHECK(check_failures(r).empty());
  r.faults.back().hosts = {"a", "d"};
  CHECK(only(check_failures(r), "failures"));

  r = with(failed("request_lost"));
  r.faults.push_back(fault(fault_kind::kill_hub, 11, 11, {"a"}));
  CHECK(only(check_failures(r), "failures"));  // another host's hub
  r.faults.back().hosts = {"b"};
  CHECK(check_failures(r).empty());
}

TEST_CASE("a long deadline is never an excuse, a short one is") {
  auto c = failed("deadline_exceeded", second(70));
  CHECK(only(check_failures(with(c)), "failures"));
  c->plan.timeout = 2'000ms;
  CHECK(check_failures(with(c)).empty());
  c->ended = second(11);  // too early
  CHECK(only(check_failures(with(c)), "failures"));
}

TEST_CASE("attempts end early only for what faults explain") {
  auto r = with(happy());
  r.attempts.push_back({0, "worker_lost", "x is gone"});
  CHECK(check_attempts(r).empty());
  r.attempts.back().code = "hand_over_protocol";
  CHECK(only(check_attempts(r), "attempts"));
  r.attempts.back().code = "lease_lapsed";
  CHECK(only(check_attempts(r), "attempts"));
  r.faults.push_back(fault(fault_kind::cut_link, 9, 11));
  CHECK(check_attempts(r).empty());
  r.attempts.back().code = "token_gap";
  CHECK(only(check_attempts(r), "attempts"));
  for (auto kind : {fault_kind::freeze_node, fault_kind::kill_link}) {
    auto with_fault = r;
    with_fault.faults.push_back(fault(kind, 9, 11));
    CHECK(check_attempts(with_fault).empty());
  }
  r.attempts.back().code = "engine_failed";
  CHECK(only(check_attempts(r), "attempts"));
  r.faults.push_back(fault(fault_kind::garbage, 9, 9));
  CHECK(check_attempts(r).empty());
  r.attempts.back().code = "job_stalled";
  CHECK(only(check_attempts(r), "attempts"));
  r.forgetful = true;
  CHECK(check_attempts(r).empty());
}

TEST_CASE("books: nothing may be held") {
  run_record r;
  CHECK(check_books(r).empty());
  r.shards = {{"a", 0, {}, 0, 0}, {"b", 1, {}, 0, 0}};
  CHECK(only(check_books(r), "leases"));
  r.shards.back().leases = 0;
  CHECK(check_books(r).empty());
  r.nodes.push_back({"a", 0, 12, 0});
  CHECK(only(check_books(r), "hubs"));
  r.nodes.clear();
  auto of = [&](auto change) {
    worker_books b;
    b.engine = "decode/d/a.0";
    b.buffers = b.buffers_free = 3;
    change(b);
    r.workers = {b};
    return check_books(r);
  };
  CHECK(of([](auto&) {}).empty());
  CHECK(only(of([](auto& b) { b.referenced = 1; }), "kv"));
  CHECK(only(of([](auto& b) { b.mismatches = {"cells"}; }), "kv"));
  CHECK(only(of([](auto& b) { b.routes = 1; }), "jobs"));
  CHECK(only(of([](auto& b) { b.hand_overs = 1; }), "hand-overs"));
  CHECK(only(of([](auto& b) { b.buffers_free = 2; }), "buffers"));
  r.workers.clear();
  r.mismatches = {{"decode/d/a.0", "cells"}};
  CHECK(only(check_books(r), "kv"));
}

TEST_CASE("kills need an excuse") {
  run_record r;
  r.kills.push_back({"decode/d/a.0", second(5), true});
  CHECK(check_kills(r).empty());
  r.kills.back().excused = false;
  CHECK(only(check_kills(r), "kills"));
}

TEST_CASE("restarts stay within their limit, for each launcher by itself") {
  run_record r;
  r.restart_intensity = 3;
  r.restart_period = 60s;
  for (int i = 0; i < 4; ++i) r.starts.push_back({"e", 1, second(i)});
  CHECK(check_restarts(r).empty());  // the first is no restart
  r.starts.push_back({"e", 2, second(5)});
  CHECK(check_restarts(r).empty());
  r.starts.push_back({"e", 1, second(5)});
  CHECK(only(check_restarts(r), "restarts"));
  SECTION("later") { r.starts.back().at = second(62); }
  SECTION("after a crash over a request, which doesn't count") { r.starts[2].over_request = true; }
  CHECK(check_restarts(r).empty());
}

TEST_CASE("a node that goes by another assignment than the one on the disk is named") {
  run_record r;
  r.persisted = {3, 2};
  r.go_by = {{"a", {3, 2}}, {"b", {3, 2}}};
  CHECK(check_assignments(r).empty());
  r.go_by[1].number = {3, 3};  // it was told of what was not persisted
  CHECK(only(check_assignments(r), "assignments"));
  r.go_by[1].number = {2, 9};  // or has missed it
  CHECK(only(check_assignments(r), "assignments"));
  r.go_by[1].number = {3, 2};
  r.shards = {{"a", 0, {3, 2}, 0, 0}};
  CHECK(check_assignments(r).empty());
  r.shards[0].goes_by = {3, 1};  // its hub has told it nothing
  CHECK(only(check_assignments(r), "assignments"));
}

TEST_CASE("what is not ready at the end is said") {
  run_record r;
  r.not_ready = {"a sees nobody"};
  CHECK(only(check_readiness(r), "readiness"));
}

TEST_CASE("a node that gives up takes its requests along, and has had that many kills") {
  auto r = with(failed("internal_error"));
  CHECK(only(check_failures(r), "failures"));
  r.gave_up.push_back({"b", second(13)});
  CHECK(check_failures(r).empty());
  r.gave_up.back().host = "a";
  CHECK(only(check_failures(r), "failures"));
  for (int i = 0; i < 3; ++i) r.faults.push_back(fault(fault_kind::kill_router, i, i, {"a"}));
  CHECK(only(check_restarts(r), "restarts"));
  r.faults.push_back(fault(fault_kind::kill_launcher, 13, 13, {"b"}));
  CHECK(only(check_restarts(r), "restarts"));
  r.faults.back().hosts = {"a"};
  CHECK(check_restarts(r).empty());
}
