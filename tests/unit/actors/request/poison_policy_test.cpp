#include "actors/request/fingerprint.hpp"
#include "actors/request/poison_policy.hpp"
#include "actors/request/retry_budget.hpp"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <catch2/catch.hpp>

using namespace troupe;
using namespace troupe::request;
using namespace std::chrono_literals;
using verdict = suspicion::verdict;

namespace {

const auto start = poison_list::time_point{} + 1h;

prompt_content content(const std::string& text, std::uint64_t seed, float temperature = 1) {
  capnp::MallocMessageBuilder b;
  auto c = b.initRoot<msg::Completion>();
  c.setModel("m");
  c.getPrompt().setText(text);
  c.initSampling().setSeed(seed);
  c.getSampling().setTemperature(temperature);
  prompt_content p;
  p.words = capnp::messageToFlatArray(b);
  return p;
}

}  // namespace

TEST_CASE("nothing but a crash while alone convicts") {
  suspicion s;
  for (std::uint32_t i = 0; i < 20; ++i) CHECK(s.crashed(1, false) == verdict::alone);
  CHECK(s.crashed(2, true) == verdict::alone);
  CHECK(s.crashed(1, true) == verdict::convicted);
}

TEST_CASE("one of few suspects is tried alone after one crash, one of many after two") {
  CHECK(suspicion{}.crashed(1, false) == verdict::alone);
  CHECK(suspicion{}.crashed(2, false) == verdict::alone);
  CHECK(suspicion{}.crashed(3, false) == verdict::together);
  suspicion s;
  CHECK(s.crashed(333, false) == verdict::together);
  CHECK_FALSE(s.must_be_alone());
  CHECK(s.crashed(333, false) == verdict::alone);
  CHECK(s.must_be_alone());
}

TEST_CASE("what no single engine can be blamed for is the prompt's own fault") {
  suspicion s;
  CHECK(s.faulted(1, false, {"a"}) == verdict::alone);
  CHECK(s.faulted(1, false, {"b"}) == verdict::alone);  // beside others it proves nothing
  SECTION("two engines that compute it alone") {
    CHECK(s.faulted(1, true, {"a"}) == verdict::alone);
    CHECK(s.faulted(1, true, {"a"}) == verdict::alone);  // a may be broken
    CHECK(s.faulted(1, true, {"b"}) == verdict::convicted);
  }
  SECTION("two pairs with the same prefill, then without") {
    CHECK(s.faulted(1, true, {"a", "p"}) == verdict::alone);
    CHECK(s.faulted(1, true, {"b", "p"}) == verdict::alone);
    CHECK(s.faulted(1, true, {"a", "p"}) == verdict::alone);
    CHECK(s.faulted(1, true, {"a"}) == verdict::convicted);
  }
  SECTION("others were in the pass all the same") {
    CHECK(s.faulted(1, true, {"a"}) == verdict::alone);
    CHECK(s.faulted(2, true, {"b"}) == verdict::alone);
  }
  SECTION("it got on in between") {
    CHECK(s.faulted(1, true, {"a"}) == verdict::alone);
    s.survived();
    CHECK(s.faulted(1, true, {"b"}) == verdict::alone);
  }
}

TEST_CASE("of many in a pass that failed each is tried beside others once more") {
  suspicion s;
  CHECK(s.faulted(100, false, {"a"}) == verdict::together);
  CHECK(s.any());
  CHECK(s.faulted(100, false, {"b"}) == verdict::alone);
}

TEST_CASE("whoever gets past the crash is no suspect any more") {
  suspicion s;
  s.crashed(100, false);
  CHECK(s.any());
  s.survived();
  CHECK_FALSE(s.any());
  CHECK(s.crashed(100, false) == verdict::together);
}

TEST_CASE("a number of suspects that cannot be is taken for one") {
  CHECK(suspicion{}.crashed(0, false) == verdict::alone);
}

TEST_CASE("convicted content is refused for a while, and no longer") {
  poison_list l;
  CHECK(l.empty());
  l.add(7, 60s, start);
  CHECK_FALSE(l.empty());
  CHECK(l.refused_for(7, start) == 60s);
  CHECK(l.refused_for(8, start) == 0s);
  CHECK(l.refused_for(7, start + 59s) == 1s);
  CHECK(l.refused_for(7, start + 60s) == 0s);
  l.forget_old(start + 60s);
  CHECK(l.empty());
}

TEST_CASE("a peer cannot have content refused for longer than we would") {
  poison_list l;
  l.add(7, 24h, start);
  CHECK(l.refused_for(7, start) == poison_refused_for);
  l.add(7, 1s, start);  // nor does a shorter word take it back
  CHECK(l.refused_for(7, start) == poison_refused_for);
}

TEST_CASE("of too many convictions the one that ends next is forgotten") {
  poison_list l;
  for (std::uint64_t i = 0; i < poison_fingerprints_max; ++i) l.add(i, 100s, start);
  l.add(5, 50s, start);
  l.add(1'000'000, 90s, start);
  CHECK(l.size() == poison_fingerprints_max);
  CHECK(l.refused_for(1'000'000, start) == 0s);
  l.add(1'000'001, 200s, start);
  CHECK(l.size() == poison_fingerprints_max);
  CHECK(l.refused_for(1'000'001, start) == 200s);
}

TEST_CASE("a fingerprint is that of content and sampling, but not of the seed that was drawn") {
  const auto base = fingerprint(content("one", 1));
  CHECK(fingerprint(content("one", 2)) == base);
  CHECK(fingerprint(content("two", 1)) != base);
  CHECK(fingerprint(content("one", 1, 0)) != base);
}

TEST_CASE("a long prompt has a fingerprint, too") {
  const std::string text(9U << 20U, 'x');
  CHECK(fingerprint(content(text, 1)) != fingerprint(content(text + "y", 1)));
}

TEST_CASE("a node's further attempts are paced for streams and refused for others once its budget "
          "is used up") {
  retry_budget b{10, 5};
  for (int i = 0; i < 8; ++i) CHECK(b.pace(start) == 0ms);
  CHECK(b.try_take(start));
  CHECK(b.try_take(start));
  CHECK_FALSE(b.try_take(start));
  CHECK(b.debt(start) == 0ms);  // nobody waits yet
  CHECK(b.pace(start) == 200ms);
  CHECK(b.pace(start) == 400ms);
  CHECK(b.debt(start) == 400ms);
  CHECK_FALSE(b.try_take(start + 400ms));
  CHECK(b.debt(start + 400ms) == 0ms);
  CHECK(b.try_take(start + 700ms));
}

TEST_CASE("a stream waits only so long for the budget, and the budget does not grow beyond its "
          "burst") {
  retry_budget b{10, 5};
  for (int i = 0; i < 1'000; ++i) CHECK(b.pace(start) <= retry_wait_max);
  CHECK(b.pace(start) == retry_wait_max);
  const auto later = start + 24h;
  for (int i = 0; i < 10; ++i) CHECK(b.try_take(later));
  CHECK_FALSE(b.try_take(later));
}
