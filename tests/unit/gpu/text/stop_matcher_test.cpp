#include "gpu/text/stop_matcher.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <optional>
#include <random>

using troupe::text::stop_matcher;

namespace {

struct outcome {
  std::string text;
  std::string stop;
  bool operator==(const outcome&) const = default;
};

/// The definition, without any cleverness: the first end of any stop wins, the longest of those
/// that end there.
outcome by_definition(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::optional<std::string> best;
    for (const auto& stop : stops)
      if (!stop.empty() && stop.size() <= end &&
          text.compare(end - stop.size(), stop.size(), stop) == 0 &&
          (!best || stop.size() > best->size()))
        best = stop;
    if (best) return {text.substr(0, end - best->size()), *best};
  }
  return {text, ""};
}

}  // namespace

TEST_CASE("stop matcher: holds back what may still become a stop string, and no more") {
  stop_matcher m({"</end>"});
  CHECK(m.push("abc<").text == "abc");
  CHECK(m.push("/en").text.empty());
  CHECK(m.held_bytes() == 4);
  CHECK(m.push("t").text == "</ent");
  auto last = m.push("x</end>never seen");
  CHECK(last.text == "x");
  CHECK(last.stopped);
  CHECK(last.stop_text == "</end>");
  CHECK(m.push("more").text.empty());
  CHECK(m.finish().empty());
}

TEST_CASE("stop matcher: the end gives out what was held back") {
  stop_matcher m({"STOP"});
  CHECK(m.push("a STO").text == "a ");
  CHECK(m.finish() == "STO");
}

TEST_CASE("stop matcher: empty stop strings stop nothing") {
  stop_matcher m({"", ""});
  CHECK(m.push("abc").text == "abc");
}

TEST_CASE("stop matcher: the same result as the definition, however the text is cut") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto word = [&](std::size_t longest) {
    std::string s;
    for (auto n = random() % (longest + 1); n > 0; --n) s += static_cast<char>('a' + random() % 2);
    return s;
  };
  for (int round = 0; round < 4000; ++round) {
    std::vector<std::string> stops;
    for (auto n = random() % 4; n > 0; --n) stops.push_back(word(5));
    const auto text = word(30);
    CAPTURE(text, stops);
    stop_matcher m(stops);
    outcome got;
    bool stopped = false;
    for (std::size_t i = 0; i < text.size() && !stopped;) {
      const auto n = std::min<std::size_t>(1 + random() % 4, text.size() - i);
      auto found = m.push(std::string_view(text).substr(i, n));
      got.text += found.text;
      got.stop = found.stop_text;
      stopped = found.stopped;
      i += n;
    }
    got.text += m.finish();
    REQUIRE(got == by_definition(text, stops));
  }
}
