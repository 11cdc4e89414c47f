#include "actors/router/session_book.hpp"

#include <catch2/catch.hpp>

using troupe::router::session_book;

TEST_CASE("a session is known by its model and name, with its latest pair") {
  session_book b{10};
  CHECK(b.find("m", "s") == nullptr);
  b.note("m", "s", {"p1", "d1"});
  b.note("m", "other", {"p2", "d2"});
  REQUIRE(b.find("m", "s") != nullptr);
  CHECK(b.find("m", "s")->prefill == "p1");
  CHECK(b.find("m", "s")->decode == "d1");
  CHECK(b.find("n", "s") == nullptr);
  b.note("m", "s", {"p3", "d3"});
  CHECK(b.find("m", "s")->decode == "d3");
  CHECK(b.size() == 2);
}

TEST_CASE("a choice without prefill leaves the last prefill known") {
  session_book b{10};
  b.note("m", "s", {"p1", "d1"});
  b.note("m", "s", {"", "d1"});
  CHECK(b.find("m", "s")->prefill == "p1");
}

TEST_CASE("at the limit the longest quiet session is forgotten") {
  session_book b{2};
  b.note("m", "one", {"p", "d"});
  b.note("m", "two", {"p", "d"});
  b.note("m", "one", {"p", "d"});
  b.note("m", "three", {"p", "d"});
  CHECK(b.size() == 2);
  CHECK(b.find("m", "one") != nullptr);
  CHECK(b.find("m", "two") == nullptr);
  CHECK(b.find("m", "three") != nullptr);
  session_book none{0};
  none.note("m", "one", {"p", "d"});
  CHECK(none.size() == 0);
}

TEST_CASE("sessions of keys that leave are taken out, the latest first") {
  session_book b{10};
  b.note("m", "one", {"p1", "d1"}, 5);
  b.note("m", "two", {"", "d2"}, 50);
  b.note("m", "three", {"p3", "d3"}, 6);
  b.note("m", "one", {"", "d4"}, 5);
  const auto gone = b.take([](std::uint64_t key) { return key < 10; });
  REQUIRE(gone.size() == 2);
  CHECK(gone[1].used.decode == "d3");
  CHECK(gone[0].used.decode == "d4");
  CHECK(gone[0].used.prefill == "p1");
  CHECK(gone[0].shard_key == 5);
  CHECK(b.size() == 1);
  CHECK(b.find("m", "one") == nullptr);
  CHECK(b.find("m", "two") != nullptr);

  session_book next{2};
  next.note("m", "one", {"p9", "d9"}, 5);  // it was asked before it was told
  for (const auto& s : gone) next.add(s);
  CHECK(next.size() == 2);
  CHECK(next.find("m", "one")->decode == "d9");
  CHECK(next.find("m", "three")->decode == "d3");
  // No session that is known here gives way to them; they give way to each new one.
  next.add({77, 7, {"p", "d"}});
  CHECK(next.size() == 2);
  CHECK(next.find("m", "three") != nullptr);
  next.note("m", "four", {"p", "d"}, 8);
  CHECK(next.size() == 2);
  CHECK(next.find("m", "one") != nullptr);
  CHECK(next.find("m", "three") == nullptr);
  session_book none{0};
  none.add({77, 7, {"p", "d"}});
  CHECK(none.size() == 0);
}
