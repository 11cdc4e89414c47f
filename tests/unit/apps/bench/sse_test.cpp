#include "apps/bench/sse.hpp"

#include <catch2/catch.hpp>

#include <random>
#include <string>
#include <vector>

using troupe::bench::event_bytes_max;
using troupe::bench::sse_splitter;

namespace {

std::vector<std::string> feed(sse_splitter& s, std::string_view bytes) {
  std::vector<std::string> out;
  REQUIRE(s.feed(bytes, [&](std::string_view data) { out.emplace_back(data); }));
  return out;
}

const std::string stream =
    "data: one\n\n: comment\r\nevent: x\r\ndata: two\r\n\r\ndata:three\ndata: more\n\ndata:\n\nid: "
    "5\n\ndata: [DONE]\n\n";
const std::vector<std::string> events = {"one", "two", "three\nmore", "", "[DONE]"};

}  // namespace

TEST_CASE("events of a whole stream", "[bench]") {
  sse_splitter s;
  CHECK(feed(s, stream) == events);
  CHECK_FALSE(s.inside_event());
}

TEST_CASE("events are the same wherever the stream is cut", "[bench]") {
  for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
    INFO(cut);
    sse_splitter s;
    auto out = feed(s, stream.substr(0, cut));
    for (auto& e : feed(s, stream.substr(cut))) out.push_back(e);
    CHECK(out == events);
  }
  sse_splitter s;
  std::vector<std::string> out;
  for (const char c : stream)
    for (auto& e : feed(s, {&c, 1})) out.push_back(e);
  CHECK(out == events);
}

TEST_CASE("an event that has not ended", "[bench]") {
  sse_splitter s;
  CHECK(feed(s, "data: x\n").empty());
  CHECK(s.inside_event());
  CHECK(feed(s, "\n") == std::vector<std::string>{"x"});
  CHECK_FALSE(s.inside_event());
  CHECK(feed(s, "dat").empty());
  CHECK(s.inside_event());
}

TEST_CASE("an endless event is given up", "[bench]") {
  const auto ignore = [](std::string_view) {};
  sse_splitter line;
  bool fine = true;
  const std::string piece(64 * 1024, 'x');
  std::size_t fed = 0;
  for (; fine && fed < 4 * event_bytes_max; fed += piece.size()) fine = line.feed(piece, ignore);
  CHECK_FALSE(fine);
  CHECK(fed <= event_bytes_max + 2 * piece.size());

  sse_splitter lines;
  fine = true;
  for (fed = 0; fine && fed < 4 * event_bytes_max; fed += piece.size())
    fine = lines.feed("data: " + piece + "\n", ignore);
  CHECK_FALSE(fine);
}
