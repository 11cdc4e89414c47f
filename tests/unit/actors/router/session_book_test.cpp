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
