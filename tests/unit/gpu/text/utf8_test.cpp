#include "gpu/text/utf8.hpp"

#include <catch2/catch.hpp>

#include <random>

using troupe::text::beginning;
using troupe::text::is_valid_utf8;
using troupe::text::utf8_assembler;

namespace {

std::string whole(std::string_view bytes) {
  utf8_assembler a;
  auto out = a.push(bytes);
  return out + a.finish();
}

const std::string r = "\xEF\xBF\xBD";

}  // namespace

TEST_CASE("utf8: ill-formed bytes become one replacement per maximal part") {
  CHECK(whole("ab\xC3\xA9") == "ab\xC3\xA9");
  CHECK(whole("\x80") == r);
  CHECK(whole("\xC0\xAF") == r + r);                  // overlong: neither byte can begin anything
  CHECK(whole("\xED\xA0\x80") == r + r + r);          // a surrogate
  CHECK(whole("\xF4\x90\x80\x80") == r + r + r + r);  // above U+10FFFF
  CHECK(whole("\xF0\x9F\x92z") == r + "z");           // cut by a letter: one part
  CHECK(whole("\xE2\x82") == r);                      // cut by the end
  CHECK(whole("\xF0\x9F\x98\x80!") == "\xF0\x9F\x98\x80!");
  CHECK(whole(std::string_view("\0x", 2)) == std::string("\0x", 2));
}

TEST_CASE("utf8: a character is never given out in parts") {
  utf8_assembler a;
  CHECK(a.push("x\xF0").empty() == false);
  CHECK(a.push("\x9F").empty());
  CHECK(a.push("\x98").empty());
  CHECK(a.pending() == 3);
  CHECK(a.push("\x80y") == "\xF0\x9F\x98\x80y");
  CHECK(a.finish().empty());
}

TEST_CASE("utf8: cuts never change the result, and the result is always valid") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const std::string alphabet = "a\x80\xBF\xC2\xA9\xE0\xA0\xED\x9F\xF0\x90\xF4\x8F\xFF";
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (auto n = random() % 24; n > 0; --n) bytes += alphabet[random() % alphabet.size()];
    const auto once = whole(bytes);
    utf8_assembler a;
    std::string cut;
    for (std::size_t i = 0; i < bytes.size();) {
      const auto n = std::min<std::size_t>(1 + random() % 3, bytes.size() - i);
      const auto part = a.push(std::string_view(bytes).substr(i, n));
      REQUIRE(is_valid_utf8(part));
      cut += part;
      i += n;
    }
    cut += a.finish();
    REQUIRE(cut == once);
    REQUIRE(is_valid_utf8(once));
  }
}

TEST_CASE("utf8: a beginning ends between two characters") {
  const std::string text = "a\xC3\xA9\xF0\x9F\x98\x80z";
  const std::size_t ends[] = {0, 1, 1, 3, 3, 3, 3, 7, 8, 8};
  for (std::size_t most = 0; most < std::size(ends); ++most) {
    CAPTURE(most);
    CHECK(beginning(text, most) == text.substr(0, ends[most]));
  }
  CHECK(beginning("\x80\x80\x80\x80\x80\x80", 5).size() >= 2);
}
