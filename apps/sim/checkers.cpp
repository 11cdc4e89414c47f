#include "apps/sim/checkers.hpp"

#include "actors/request/attempt_policy.hpp"
#include "messages/job_codes.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

namespace troupe::sim {

namespace {

using namespace std::chrono_literals;

/// From a deadline to the client's end: timers are set to the millisecond, messages take a moment.
constexpr auto deadline_slack = 500ms;
/// A worker is told what is left when its job is sent: its clock may be ahead by a message's time.
constexpr auto early_slack = 100ms;
/// Until everybody has heard that somebody serves again.
constexpr auto gap_slack = 1'500ms;
constexpr auto short_timeout = 5'000ms;
/// A node that gives up stops its children in turn.
constexpr auto node_stop_max = 6'000ms;
/// From an operator's word to what a launcher does about it.
constexpr auto order_takes = 20ms;
/// A fault's effects go on for so long after it: detection, another attempt, restarts.
constexpr auto aftermath = 16'000ms;

std::string at(time_point t) {
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(t.time_since_epoch() -
                                                                              std::chrono::hours{1})
                            .count()) +
         " ms";
}

bool overlap(time_point a, time_point b, time_point c, time_point d) { return a <= d && c <= b; }

/// A fault of one of these kinds that had to do with this host (empty: any) in a request's time.
bool hit(const run_record& r, const client_record& c, std::initializer_list<fault_kind> kinds,
         const std::string& host, std::chrono::milliseconds after = aftermath) {
  return std::any_of(r.faults.begin(), r.faults.end(), [&](const done_fault& f) {
    return std::find(kinds.begin(), kinds.end(), f.what) != kinds.end() &&
           (host.empty() || std::find(f.hosts.begin(), f.hosts.end(), host) != f.hosts.end()) &&
           overlap(f.from, f.until + after, c.begun, c.ended);
  });
}

bool begins_with(const std::string& whole, const std::string& part) {
  return whole.compare(0, part.size(), part) == 0;
}

/// What no fault of a process or of the network brings about: one side did not do what it says.
bool is_broken_protocol(const std::string& code) {
  static constexpr std::array<std::string_view, 12> codes = {
      "hand_over_protocol", "prefix_mismatch",   "kv_layout_mismatch", "piece_too_large",
      "wrong_token",        "message_malformed", "content_malformed",  "bad_token",
      "kv_import_failed",   "kv_export_failed",  "token_gap",          "not_accepted"};
  return std::find(codes.begin(), codes.end(), code) != codes.end();
}

std::size_t faults_in(const run_record& r, const client_record& c) {
  return static_cast<std::size_t>(
      std::count_if(r.faults.begin(), r.faults.end(), [&](const done_fault& f) {
        return f.victim != "nobody" && overlap(f.from, f.until + short_timeout, c.begun, c.ended);
      }));
}

/// Whether something excuses a failure.
bool excused(const run_record& r, const client_record& c) {
  const auto& code = c.failure->code;
  const auto& shape = catalogue()[c.plan.shape];
  using k = fault_kind;
  if (!shape.refusal.empty() && code == shape.refusal) return true;
  // A short time may be over before all that a fault costs is; a long one never.
  if (code == "deadline_exceeded")
    return c.plan.timeout <= short_timeout && c.ended + early_slack >= c.begun + c.plan.timeout;
  // Every shard, its host or the way to it; or the way from the client's own node.
  if (code == "router_unavailable" &&
      (hit(r, c, {k::cut_link, k::cut_one_way, k::kill_link}, c.host) ||
       (!r.router_hosts.empty() &&
        std::all_of(r.router_hosts.begin(), r.router_hosts.end(), [&](const auto& host) {
          return hit(r, c,
                     {k::kill_router, k::kill_node, k::lose_host, k::freeze_node, k::cut_link,
                      k::cut_one_way, k::kill_link},
                     host);
        }))))
    return true;
  // Its own hub has died, alone or with all that its node stops when it gives up: the request's
  // state is lost.
  if (code == "internal_error" || code == "hub_replaced" || code == "request_lost")
    return hit(r, c, {k::kill_hub}, c.host) ||
           std::any_of(r.gave_up.begin(), r.gave_up.end(), [&](const auto& n) {
             return n.host == c.host && overlap(n.at - node_stop_max, n.at, c.ended, c.ended);
           });
  // Each crash was the only thing that the engine was at, once alone by order: taken for its fault.
  if (code == "request_crashes_engine") return hit(r, c, {k::crash_in_step, k::crash_loop}, "");
  if (code == "request_not_computable") return hit(r, c, {k::garbage}, "");
  // So many faults fell into its time that each may have cost an attempt.
  if (faults_in(r, c) + 1 >= request::attempts_max) return !is_broken_protocol(code);
  // For whatever reason the last attempt failed: there was nobody else just then.
  return !is_broken_protocol(code) &&
         std::any_of(r.no_capacity.begin(), r.no_capacity.end(), [&](const auto& g) {
           return g.host == c.host && overlap(g.from - gap_slack, g.until + gap_slack,
                                              std::max(c.begun, c.ended - gap_slack), c.ended);
         });
}

/// A node that stands still hears of an order when it goes on.
time_point heeded_by(const run_record& r, const drain_taken_back& t) {
  auto heard = t.at;
  for (const auto& f : r.faults)
    if (f.what == fault_kind::freeze_node && f.victim == t.host &&
        overlap(f.from, f.until, heard, heard))
      heard = f.until;
  return heard + order_takes;
}

}  // namespace

std::vector<finding> check_endings(const run_record& r) {
  std::vector<finding> all;
  for (const auto& c : r.clients) {
    const auto say = [&](const std::string& what) {
      all.push_back({"endings", c->name, "at " + c->host + ": " + what});
    };
    if (!c->over()) {
      say("has not ended");
      continue;
    }
    if (c->endings > 1) say("was told " + std::to_string(c->endings) + " ends");
    if (c->late_word) say("was told something after its end");
    if (c->early_delta) say("got tokens before it was accepted");
    if (c->accepted > 1) say("was accepted " + std::to_string(c->accepted) + " times");
    if (c->cut_off || c->refused) continue;
    // While its node stood still, nobody could tell it.
    std::chrono::nanoseconds stood{0};
    for (const auto& f : r.faults)
      if (f.what == fault_kind::freeze_node && f.victim == c->host) stood += f.until - f.from;
    const auto late = c->ended - (c->begun + c->plan.timeout + deadline_slack + stood);
    if (late.count() > 0)
      say("ended " +
          std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(late).count()) +
          " ms too late");
  }
  return all;
}

std::vector<finding> check_answers(const run_record& r) {
  std::vector<finding> all;
  for (const auto& c : r.clients) {
    const auto& shape = catalogue()[c->plan.shape];
    const auto say = [&](const std::string& what) {
      all.push_back({"answers", c->name, "at " + c->host + ": " + what});
    };
    if (c->index_gap) say("tokens were missing or repeated");
    if (c->sum && !shape.refusal.empty()) say("was answered, but is to be refused");
    std::uint32_t sampled = 0;
    for (std::size_t i = 0; i < shape.answer.size() && i < c->got.size(); ++i) {
      const auto& want = shape.answer[i];
      const auto& got = c->got[i];
      sampled += static_cast<std::uint32_t>(got.ids.size());
      const auto which = "choice " + std::to_string(i) + ": ";
      const auto same = std::min(want.ids.size(), got.ids.size());
      if (got.ids.size() > want.ids.size() ||
          !std::equal(got.ids.begin(), got.ids.begin() + static_cast<std::ptrdiff_t>(same),
                      want.ids.begin()))
        say(which + "other tokens than without a failure");
      else if (!begins_with(want.text, got.text))
        say(which + "other text than without a failure");
      else if (c->sum && (got.ids.size() != want.ids.size() || got.text != want.text))
        say(which + "ended early, with " + std::to_string(got.ids.size()) + " of " +
            std::to_string(want.ids.size()) + " tokens");
      else if (c->sum && got.why != want.why)
        say(which + "another finish reason");
    }
    if (c->sum && c->sum->completion_tokens != sampled)
      say("usage says " + std::to_string(c->sum->completion_tokens) + " tokens, there were " +
          std::to_string(sampled));
  }
  return all;
}

std::vector<finding> check_failures(const run_record& r) {
  std::vector<finding> all;
  for (const auto& c : r.clients)
    if (c->failure && !c->refused && !excused(r, *c))
      all.push_back({"failures", c->name,
                     "at " + c->host + " from " + at(c->begun) + " to " + at(c->ended) + ": " +
                         c->failure->code + ": " + c->failure->message});
  return all;
}

std::vector<finding> check_attempts(const run_record& r) {
  using k = fault_kind;
  std::vector<finding> all;
  for (const auto& a : r.attempts) {
    const auto& c = *r.clients.at(a.client);
    // Leases are renewed as long as a request's node and the way to its workers are whole.
    const bool explained = a.code == "lease_lapsed" || a.code == msg::job_lost
                               ? hit(r, c,
                                     {k::cut_link, k::cut_one_way, k::freeze_node, k::kill_node,
                                      k::lose_host, k::kill_hub, k::kill_link, k::kill_launcher,
                                      k::freeze_engine_short, k::freeze_engine_long,
                                      k::thaw_fenced_engine},
                                     "")
                           : a.code == "engine_failed" || a.code == "garbage"
                               ? hit(r, c, {k::garbage}, "")
                           // An engine whose node stood still takes its link for lost, and has it
                           // back before anybody else misses it: what was on it is gone. So it is
                           // when that link is killed while the way from there is cut: word of the
                           // loss and what came after it arrive together, and by two actors.
                           : a.code == "token_gap" ? hit(r, c, {k::freeze_node, k::kill_link}, "")
                           : a.code == msg::job_stalled ? r.forgetful
                                                        : !is_broken_protocol(a.code);
    if (!explained)
      all.push_back({"attempts", c.name, "an attempt ended with " + a.code + ": " + a.text});
  }
  return all;
}

std::vector<finding> check_books(const run_record& r) {
  std::vector<finding> all;
  for (const auto& s : r.shards)
    if (s.leases > 0)
      all.push_back({"leases", s.host,
                     "the router's shard there has " + std::to_string(s.leases) +
                         " leases that nobody gave back"});
  for (const auto& n : r.nodes)
    if (n.open_requests + n.prompt_bytes + n.jobs > 0)
      all.push_back({"hubs", n.host,
                     "holds " + std::to_string(n.open_requests) + " requests, " +
                         std::to_string(n.prompt_bytes) + " prompt bytes, " +
                         std::to_string(n.jobs) + " jobs"});
  for (const auto& [engine, what] : r.mismatches)
    all.push_back({"kv", engine, "the books did not balance between two steps: " + what});
  for (const auto& w : r.workers) {
    const auto say = [&](const char* checker, const std::string& what) {
      all.push_back({checker, w.engine, what});
    };
    for (const auto& m : w.mismatches) say("kv", "the books do not balance: " + m);
    if (w.referenced > 0) say("kv", std::to_string(w.referenced) + " tokens of KV are referenced");
    if (w.routes + w.jobs > 0)
      say("jobs", std::to_string(w.routes) + " jobs at the worker, " + std::to_string(w.jobs) +
                      " in the engine");
    if (w.hand_overs > 0) say("hand-overs", std::to_string(w.hand_overs) + " are open");
    if (w.buffers_free != w.buffers)
      say("buffers", std::to_string(w.buffers - w.buffers_free) + " of " +
                         std::to_string(w.buffers) + " have not come back");
  }
  return all;
}

std::vector<finding> check_kills(const run_record& r) {
  std::vector<finding> all;
  for (const auto& k : r.kills)
    if (!k.excused)
      all.push_back({"kills", k.engine, "was killed at " + at(k.at) + " though it could go on"});
  return all;
}

std::vector<finding> check_restarts(const run_record& r) {
  std::vector<finding> all;
  std::map<std::pair<std::string, std::uint64_t>, std::vector<time_point>> by_launcher;
  auto orders = r.faults;
  std::erase_if(orders, [](const done_fault& f) { return f.what != fault_kind::restart_engine; });
  for (const auto& s : r.starts) {
    const auto order = std::find_if(orders.begin(), orders.end(), [&](const done_fault& f) {
      return f.victim == s.engine && f.from <= s.at;
    });
    const bool taken_back = std::any_of(
        r.taken_back.begin(), r.taken_back.end(), [&](const auto& t) {
          return t.engine == s.engine && overlap(t.at, heeded_by(r, t), s.at, s.at);
        });
    // One start follows from each order, and is nobody's failure.
    if (taken_back) continue;
    if (order != orders.end()) {
      orders.erase(order);
      continue;
    }
    auto& times = by_launcher[{s.engine, s.launcher}];
    if (!s.over_request || times.empty()) times.push_back(s.at);
  }
  for (const auto& [who, times] : by_launcher)
    // The first is no restart.
    for (std::size_t i = 1; i + r.restart_intensity < times.size(); ++i)
      if (times[i + r.restart_intensity] - times[i] < r.restart_period) {
        all.push_back({"restarts", who.first,
                       "was restarted more than " + std::to_string(r.restart_intensity) +
                           " times from " + at(times[i])});
        break;
      }
  for (const auto& n : r.gave_up) {
    const auto killed = std::count_if(r.faults.begin(), r.faults.end(), [&](const done_fault& f) {
      using k = fault_kind;
      const bool of_tree = f.what == k::kill_hub || f.what == k::kill_router ||
                           f.what == k::kill_launcher || f.what == k::kill_watchdog;
      return of_tree && f.victim != "nobody" && f.from <= n.at &&
             n.at - f.from < r.restart_period + node_stop_max &&
             std::find(f.hosts.begin(), f.hosts.end(), n.host) != f.hosts.end();
    });
    if (killed <= static_cast<std::ptrdiff_t>(r.restart_intensity))
      all.push_back({"restarts", n.host,
                     "gave up at " + at(n.at) + " after " + std::to_string(killed) + " kills"});
  }
  return all;
}

std::vector<finding> check_assignments(const run_record& r) {
  std::vector<finding> all;
  const auto text = [](const control::assignment_number& n) {
    return std::to_string(n.term) + "." + std::to_string(n.generation);
  };
  const auto hold = [&](const std::string& host, const char* who,
                        const control::assignment_number& number) {
    if (number != r.persisted)
      all.push_back({"assignments", host,
                     std::string{who} + " goes by assignment " + text(number) +
                         ", and the control host has " + text(r.persisted) + " on its disk"});
  };
  for (const auto& n : r.go_by) hold(n.host, "its hub", n.number);
  for (const auto& s : r.shards) hold(s.host, "its router's shard", s.goes_by);
  return all;
}

std::vector<finding> check_readiness(const run_record& r) {
  std::vector<finding> all;
  for (const auto& text : r.not_ready) all.push_back({"readiness", "", text});
  return all;
}

std::vector<finding> check_all(const run_record& r) {
  std::vector<finding> all;
  for (auto* check : {check_endings, check_answers, check_failures, check_attempts, check_books,
                      check_assignments, check_kills, check_restarts, check_readiness})
    for (auto& f : check(r)) all.push_back(std::move(f));
  return all;
}

}  // namespace troupe::sim
