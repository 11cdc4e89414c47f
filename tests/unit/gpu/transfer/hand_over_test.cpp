// Every phase of a hand-over against every event, on both sides.
#include "gpu/transfer/hand_over.hpp"

#include <catch2/catch.hpp>

#include <functional>
#include <map>

using namespace troupe;
using namespace troupe::transfer;
using namespace std::chrono_literals;

namespace {

const time_point start{};
const std::vector<engine::token_id> prompt{5,  6,  7,  8,  9, 10,
                                           11, 12, 13, 14, 15};  // 11 tokens, KV of 10
constexpr std::uint64_t layout = 3;

std::string text(const actions& all) {
  static const std::map<does, std::string> names{
      {does::send_piece, "piece"},     {does::send_end, "end"},
      {does::send_grant, "grant"},     {does::send_refuse, "refuse"},
      {does::send_adopted, "adopted"}, {does::send_abort, "abort"},
      {does::take_piece, "take"},      {does::drop_piece, "drop"},
      {does::tell_open, "tell_open"},  {does::tell_granted, "tell_granted"},
      {does::tell_end, "tell_end"},    {does::tell_done, "tell_done"},
      {does::tell_failed, "failed"},   {does::send_queued, "queued"}};
  std::string out;
  for (const auto& a : all) out += (out.empty() ? "" : " ") + names.at(a.what);
  return out;
}

send_session sender_in(phase wanted) {
  send_session s(start, 10s, prompt, 10);
  if (wanted == phase::freed) s.cancel({"x", "x"});
  if (wanted == phase::reserved || wanted == phase::freed) return s;
  s.granted(start, 2, digest_of(std::span(prompt).first(2)), 1000);
  if (wanted == phase::sending) return s;
  s.ready(start, 2, 10, 500);
  s.sent(start, true, {});
  s.finish(start);
  if (wanted == phase::adopted) s.adopted(start);
  return s;
}

receive_session receiver_in(phase wanted, bool open = true) {
  receive_session r(start, 10s, layout);
  if (wanted == phase::freed) r.cancel({"x", "x"});
  if (wanted == phase::freed || !open) return r;
  r.opened(start, 11, 10, layout);
  if (wanted == phase::reserved) return r;
  r.grant(start, 2, 1000);
  if (wanted == phase::sending) return r;
  r.offered(start, 2, 10, 500, 1000);
  r.arrived(start, true, {});
  r.ended(start, 1, 500);
  if (wanted == phase::adopted) r.adopt(start);
  return r;
}

const std::vector<phase> phases{phase::reserved, phase::sending, phase::received, phase::adopted,
                                phase::freed};

}  // namespace

TEST_CASE("sender: each event in each phase") {
  using event = std::function<actions(send_session&)>;
  struct row {
    const char* name;
    event happens;
    std::vector<std::string> expected;  // by phase
  };
  const auto good = digest_of(std::span(prompt).first(2));
  const std::vector<row> table{
      {"grant",
       [&](auto& s) { return s.granted(start, 2, good, 1000); },
       {"tell_granted", "abort failed", "abort failed", "", ""}},
      {"grant of another prefix",
       [&](auto& s) { return s.granted(start, 2, good + 1, 1000); },
       {"abort failed", "abort failed", "abort failed", "", ""}},
      {"grant of too much",
       [&](auto& s) { return s.granted(start, 11, good, 1000); },
       {"abort failed", "abort failed", "abort failed", "", ""}},
      {"refused",
       [](auto& s) {
         return s.refused({"kv_exhausted", ""});
       },
       {"failed", "failed", "failed", "", ""}},
      {"credit", [](auto& s) { return s.credited(start, 10); }, {"abort failed", "", "", "", ""}},
      {"piece ready",
       [](auto& s) { return s.ready(start, 2, 5, 900); },
       {"abort failed", "piece", "abort failed", "", ""}},
      {"piece without credit",
       [](auto& s) { return s.ready(start, 2, 5, 1001); },
       {"abort failed", "", "abort failed", "", ""}},
      {"piece out of turn",
       [](auto& s) { return s.ready(start, 3, 5, 9); },
       {"abort failed", "abort failed", "abort failed", "", ""}},
      {"piece beyond the prompt",
       [](auto& s) { return s.ready(start, 2, 11, 9); },
       {"abort failed", "abort failed", "abort failed", "", ""}},
      {"a send failed",
       [](auto& s) {
         return s.sent(start, false, {"peer_failed", ""});
       },
       {"abort failed", "abort failed", "abort failed", "", ""}},
      {"finish too early",
       [](auto& s) { return s.finish(start); },
       {"abort failed", "abort failed", "abort failed", "", ""}},
      {"adopted",
       [](auto& s) { return s.adopted(start); },
       {"abort failed", "abort failed", "tell_done", "", ""}},
      {"aborted by the peer",
       [](auto& s) {
         return s.aborted({"x", ""});
       },
       {"failed", "failed", "failed", "", ""}},
      {"cancelled here",
       [](auto& s) {
         return s.cancel({"x", ""});
       },
       {"abort failed", "abort failed", "abort failed", "", ""}},
      {"just before the deadline",
       [](auto& s) { return s.tick(start + 9999ms); },
       {"", "", "", "", ""}},
      {"the deadline",
       [](auto& s) { return s.tick(start + 10s); },
       {"abort failed", "", "abort failed", "", ""}},
  };
  for (const auto& r : table)
    for (std::size_t i = 0; i < phases.size(); ++i) {
      if (std::string(r.name) == "finish too early" && phases[i] == phase::received)
        continue;  // finished twice: nothing new
      INFO(r.name << " in phase " << i);
      auto s = sender_in(phases[i]);
      REQUIRE(s.now_in() == phases[i]);
      CHECK(text(r.happens(s)) == r.expected[i]);
    }
}

TEST_CASE("receiver: each event in each phase") {
  using event = std::function<actions(receive_session&)>;
  struct row {
    const char* name;
    event happens;
    std::vector<std::string> expected;
  };
  const std::vector<row> table{
      {"open",
       [](auto& r) { return r.opened(start, 11, 10, layout); },
       {"abort failed", "abort failed", "abort failed", "", ""}},
      {"grant",
       [](auto& r) { return r.grant(start, 2, 1000); },
       {"grant", "abort failed", "abort failed", "", ""}},
      {"grant of too much",
       [](auto& r) { return r.grant(start, 11, 1000); },
       {"abort failed", "abort failed", "abort failed", "", ""}},
      {"refuse",
       [](auto& r) {
         return r.refuse({"x", ""});
       },
       {"refuse failed", "refuse failed", "refuse failed", "", ""}},
      {"offer",
       [](auto& r) { return r.offered(start, 2, 5, 900, 1000); },
       {"drop abort failed", "take", "drop abort failed", "drop", "drop"}},
      {"offer out of turn",
       [](auto& r) { return r.offered(start, 3, 5, 9, 1000); },
       {"drop abort failed", "drop abort failed", "drop abort failed", "drop", "drop"}},
      {"offer beyond a buffer",
       [](auto& r) { return r.offered(start, 2, 5, 9, 8); },
       {"drop abort failed", "drop abort failed", "drop abort failed", "drop", "drop"}},
      {"offer beyond the credit",
       [](auto& r) { return r.offered(start, 2, 5, 1001, 9000); },
       {"drop abort failed", "drop abort failed", "drop abort failed", "drop", "drop"}},
      {"offer of nothing",
       [](auto& r) { return r.offered(start, 2, 5, 0, 1000); },
       {"drop abort failed", "drop abort failed", "drop abort failed", "drop", "drop"}},
      {"a receive failed",
       [](auto& r) {
         return r.arrived(start, false, {"peer_failed", ""});
       },
       {"abort failed", "abort failed", "abort failed", "", ""}},
      {"end without the pieces",
       [](auto& r) { return r.ended(start, 0, 0); },
       {"abort failed", "abort failed", "abort failed", "", ""}},
      {"adopt",
       [](auto& r) { return r.adopt(start); },
       {"abort failed", "abort failed", "adopted", "", ""}},
      {"aborted by the peer",
       [](auto& r) {
         return r.aborted({"x", ""});
       },
       {"failed", "failed", "failed", "", ""}},
      {"cancelled here",
       [](auto& r) {
         return r.cancel({"x", ""});
       },
       {"abort failed", "abort failed", "abort failed", "", ""}},
      {"the deadline",
       [](auto& r) { return r.tick(start + 10s); },
       {"queued", "", "abort failed", "", ""}},
  };
  for (const auto& row : table)
    for (std::size_t i = 0; i < phases.size(); ++i) {
      INFO(row.name << " in phase " << i);
      auto r = receiver_in(phases[i]);
      REQUIRE(r.now_in() == phases[i]);
      CHECK(text(row.happens(r)) == row.expected[i]);
    }
}

TEST_CASE("receiver: what is offered is checked before anything is reserved") {
  auto fresh = [] { return receiver_in(phase::reserved, false); };
  auto a = fresh();
  CHECK(text(a.opened(start, 11, 10, layout)) == "tell_open");
  auto b = fresh();
  CHECK(text(b.opened(start, 11, 10, layout + 1)) == "refuse failed");
  auto c = fresh();
  CHECK(text(c.opened(start, 10, 10, layout)) == "refuse failed");
  auto d = fresh();
  CHECK(text(d.opened(start, 0, 0, layout)) == "refuse failed");
  auto e = fresh();
  CHECK(text(e.grant(start, 0, 10)) == "abort failed");
  auto f = fresh();
  CHECK(text(f.tick(start + 1h)) == "");  // its job's lease bounds the wait
}

TEST_CASE("a deadline runs only while the transport owes something, and every step of progress "
          "restarts it") {
  auto s = sender_in(phase::sending);
  CHECK(text(s.tick(start + 1h)) == "");  // prefill computes
  CHECK(text(s.ready(start + 1h, 2, 6, 600)) == "piece");
  CHECK(text(s.tick(start + 1h + 9s)) == "");
  CHECK(text(s.ready(start + 1h + 9s, 6, 10, 600)) == "");  // beyond the credit
  CHECK(text(s.tick(start + 1h + 9s)) == "");
  CHECK(text(s.sent(start + 1h + 9s, true, {})) == "");
  CHECK(text(s.tick(start + 1h + 18s)) == "");
  CHECK(text(s.credited(start + 1h + 18s, 600)) == "piece");
  CHECK(text(s.finish(start + 1h + 18s)) == "");
  CHECK(text(s.tick(start + 1h + 28s)) == "abort failed");
}

TEST_CASE("a prompt may wait for room as long as its receiver says that it waits") {
  auto s = sender_in(phase::reserved);
  auto r = receiver_in(phase::reserved);
  auto now = start;
  for (int i = 0; i < 1'000; ++i) {
    now += 1s;
    for (const auto& a : r.tick(now))
      if (a.what == does::send_queued) s.queued(now);
    REQUIRE(text(s.tick(now)) == "");
  }
  CHECK(text(s.tick(now + 10s)) == "abort failed");  // silence
}

TEST_CASE("the one-time token is compared whole, and only at its full length") {
  std::vector<std::byte> a(16, std::byte{1});
  auto b = a;
  CHECK(same_token(a, b));
  b[15] = std::byte{2};
  CHECK_FALSE(same_token(a, b));
  CHECK_FALSE(same_token({}, {}));
  CHECK_FALSE(same_token(std::span(a).first(15), std::span(a).first(15)));
}
