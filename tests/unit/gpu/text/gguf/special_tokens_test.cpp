#include "gpu/text/gguf/special_tokens.hpp"

#include "gpu/text/gguf/vocabulary.hpp"

#include <catch2/catch.hpp>
#include <llama.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace troupe::gguf {
namespace {

std::string times(std::size_t n, const std::string& what) {
  std::string out;
  for (std::size_t i = 0; i < n; ++i) out += what;
  return out;
}

TEST_CASE("a text is cut right before a special token that is certain to be one") {
  const special_tokens specials({{"<a>"}, {"<ab>"}, {"b><ab"}, {"\n\n", true}});
  const auto few = times(specials_per_part, "<a>x");
  CHECK(specials.part_end(few, 0) == few.size());
  CHECK(specials.part_end(few + "<a>", 0) == few.size());
  CHECK(specials.part_end(few + "yy<ab> ", 0) == few.size() + 2);
  CHECK(specials.part_end(few + "<a>" + few, few.size()) == few.size() * 2 - 1);
  // Where a longer one begins within it, it may be that which is found.
  const auto overlapped = few + times(16, "<ab><ab");
  CHECK(specials.part_end(overlapped + "yy", 0) == overlapped.size() + 2);
  CHECK(specials.part_end(overlapped + "<a>", 0) == overlapped.size());
  // A shorter one within it changes nothing, nor does the same one again.
  const special_tokens runs({{"\n"}, {"\n\n"}, {"\n\n\n"}});
  const auto lines = times(specials_per_part, "x\n");
  CHECK(runs.part_end(lines + "x\n\n\n\n", 0) == lines.size() + 1);
  // The whitespace in front would be taken away.
  CHECK(specials.part_end(few + " \n\n", 0) == few.size() + 3);
}

TEST_CASE("special tokens without any place for a cut are refused, not waited for") {
  const special_tokens specials({{"\n\n"}, {"\n"}});
  CHECK(specials.part_end(times(1'000, "\n\n"), 0) == 2'000);
  CHECK_FALSE(specials.part_end(times(specials_per_part_max + 100, "\n\n"), 0));
}

TEST_CASE("parts have the tokens of the whole") {
  open_options how;
  how.vocabulary_only = true;
  for (const auto* path : {TROUPE_TINY_GGUF, TROUPE_GEMMA_GGUF}) {
    auto model = open(path, how);
    if (!model) continue;  // the real one may not be there
    const std::shared_ptr<const llama_model> shared(std::move(*model));
    const vocabulary words(shared);
    std::vector<std::string> pieces{
        "hello",        " ",    "\n",   "\n\n\n", "<", ">", "world \t", "<s", "1", times(40, "\n"),
        times(40, " "), "\t\t", "<td>", "</"};
    const auto ordinary = pieces.size();
    for (token_id t = 0; t < 500; ++t)
      if (auto control = words.piece(t, true); words.piece(t).empty() && !control.empty())
        pieces.push_back(std::move(control));
    const auto controls = pieces.size() - ordinary;
    for (std::uint32_t seed = 1; seed <= 5; ++seed) {
      INFO(path << ", seed " << seed);
      std::mt19937 random(seed);
      std::string text;
      for (int i = 0; i < 4'000; ++i)
        text += pieces[random() % 2 == 0 ? random() % ordinary : ordinary + random() % controls];
      std::size_t parts = 0;
      const auto tokens = words.tokenize(text, true, true, [&](auto) { return ++parts > 0; });
      REQUIRE(tokens);
      CHECK(parts > 1);
      std::vector<token_id> whole(text.size() + 16);
      whole.resize(static_cast<std::size_t>(
          llama_tokenize(words.raw(), text.data(), static_cast<std::int32_t>(text.size()),
                         whole.data(), static_cast<std::int32_t>(whole.size()), true, true)));
      CHECK(*tokens == whole);
    }
  }
}

TEST_CASE("a long program, where most special tokens are whitespace, is not refused") {
  open_options how;
  how.vocabulary_only = true;
  auto model = open(TROUPE_GEMMA_GGUF, how);
  if (!model) return;
  const vocabulary words(std::shared_ptr<const llama_model>(std::move(*model)));
  const std::string line = "int f() {\n    int x = 1;\n\n        return x;\n}\n\n\n";
  const auto once = words.tokenize(line, false, true);
  const auto tokens = words.tokenize(times(10'000, line), false, true);
  REQUIRE(once);
  REQUIRE(tokens);
  CHECK(tokens->size() == 10'000 * once->size());
}

TEST_CASE("what is asked to stop stops between two parts") {
  open_options how;
  how.vocabulary_only = true;
  auto model = open(TROUPE_TINY_GGUF, how);
  REQUIRE(model);
  const vocabulary words(std::shared_ptr<const llama_model>(std::move(*model)));
  const auto tokens = words.tokenize(times(100'000, "x<s>"), true, true,
                                     [](auto so_far) { return so_far.size() < 1'000; });
  REQUIRE(tokens);
  CHECK(tokens->size() >= 1'000);
  CHECK(tokens->size() < 3'000);
}

}  // namespace
}  // namespace troupe::gguf
