#include "text_fixture.hpp"

#include "gpu/text/output_plan.hpp"

#include "gpu/text/gguf/chat_output.hpp"
#include "gpu/text/utf8.hpp"

namespace troupe::text {
namespace {

using namespace testing;

engine::output_plan tool_plan(const text_model& model, std::uint64_t seed = 7) {
  request r{{"user", "weather?"}};
  r.root.setToolsJson(weather_tools);
  r.root.getSampling().setSeed(seed);
  return rendered(model, r).plan;
}

const std::string call = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"place\": "
                         "\"Bonn\", \"days\": 3}}\n</tool_call>";
const std::string second_call = "\n<tool_call>\n{\"name\": \"get_time\", \"arguments\": "
                                "{\"place\": \"K\u00f6ln\"}}\n</tool_call>";

TEST_CASE("text streams in whole characters and stops at a stop string") {
  auto model = load();
  const auto tokens = tokens_of(*model, "the world \u4f60\u597d \U0001F600 \u00e9nd STOP here");
  const auto whole = stream(*model, {}, tokens);
  CHECK(whole.text.find("\u4f60\u597d \U0001F600 \u00e9nd STOP here") != std::string::npos);
  for (const auto& piece : whole.pieces) CHECK(is_valid_utf8(piece));
  CHECK(whole.emitted_bytes == whole.text.size());
  const auto stopped = stream(*model, {}, tokens, {"STOP"});
  CHECK(stopped.stopped);
  CHECK(stopped.text.find("STOP") == std::string::npos);
  CHECK(whole.text.starts_with(stopped.text));
}

TEST_CASE("control tokens are no text") {
  auto model = load();
  CHECK(stream(*model, {}, {1, 2}).text.empty());
  CHECK(model->is_end(2));
  CHECK_FALSE(model->is_end(300));
  CHECK(model->piece(-1).empty());
  CHECK(model->piece(static_cast<token_id>(model->vocabulary())).empty());
}

TEST_CASE("tool calls stream as deltas: named once, arguments in parts") {
  for (const auto* which : {"", "gemma"}) {
    INFO("template \"" << which << '"');
    auto model = load(which);
    const auto plan = tool_plan(*model);
    const auto out = stream(*model, plan, tokens_of(*model, call));
    CHECK(out.has_tool_calls);
    CHECK(out.named_once);
    REQUIRE(out.calls.size() == 1);
    CHECK(out.calls[0].name == "get_weather");
    CHECK(out.calls[0].id.starts_with("call_"));
    CHECK(out.calls[0].arguments.find("\"Bonn\"") != std::string::npos);
    CHECK(out.calls[0].arguments.ends_with("}"));
    CHECK(out.text.find("tool_call") == std::string::npos);
    CHECK(out.text.find("Bonn") == std::string::npos);
  }
}

TEST_CASE("several calls after text") {
  auto model = load();
  const auto out = stream(*model, tool_plan(*model),
                          tokens_of(*model, "let me look\n" + call + second_call));
  REQUIRE(out.calls.size() == 2);
  CHECK(out.named_once);
  CHECK(out.calls[1].name == "get_time");
  CHECK(out.calls[1].arguments.find("K\u00f6ln") != std::string::npos);
  CHECK(out.calls[0].id != out.calls[1].id);
  CHECK(out.text.find("let me look") != std::string::npos);
}

TEST_CASE("an answer without a call is just text, whole") {
  auto model = load();
  const auto out = stream(*model, tool_plan(*model), tokens_of(*model, "no call is needed: 1 < 2"));
  CHECK_FALSE(out.has_tool_calls);
  CHECK(out.text.find("no call is needed: 1 < 2") != std::string::npos);
  CHECK(out.emitted_bytes == out.text.size());
}

TEST_CASE("an answer cut off anywhere loses nothing that it said and throws nothing") {
  auto model = load();
  const auto plan = tool_plan(*model);
  const auto tokens = tokens_of(*model, "look\n" + call);
  for (std::size_t n = 0; n <= tokens.size(); ++n) {
    const auto out = stream(*model, plan,
                            {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n)});
    INFO(n << " tokens: " << out.text);
    CHECK(out.named_once);
    if (n == tokens.size()) CHECK(out.calls.size() == 1);
  }
}

TEST_CASE("replaying an answer gives the same ids of calls; another request's are others") {
  auto model = load();
  const auto tokens = tokens_of(*model, call);
  const auto id = stream(*model, tool_plan(*model), tokens).calls.at(0).id;
  CHECK(stream(*model, tool_plan(*model), tokens).calls.at(0).id == id);
  CHECK(stream(*model, tool_plan(*model, 8), tokens).calls.at(0).id != id);
}

TEST_CASE("stop strings act on answers with calls, too") {
  auto model = load();
  const auto out = stream(*model, tool_plan(*model), tokens_of(*model, "one two STOP " + call),
                          {"STOP"});
  CHECK(out.stopped);
  CHECK(out.calls.empty());
  CHECK(out.text.find("one two") != std::string::npos);
  CHECK(out.text.find("STOP") == std::string::npos);
}

TEST_CASE("a long answer is read so often that the work grows with its length, not its square") {
  auto model = load();
  std::string text;
  while (text.size() < 4 * gguf::parsed_at_once_bytes_max)
    text += "word " + std::to_string(text.size()) + (text.size() % 7 == 0 ? "\n" : " ");
  const auto tokens = tokens_of(*model, text + call);
  const auto out = stream(*model, tool_plan(*model), tokens);
  // What is read comes out: as much was read as pieces came, each time from the beginning.
  std::size_t size = 0, work = 0, late = 0;
  for (const auto& piece : out.pieces) {
    size += piece.size();
    if (size <= gguf::parsed_at_once_bytes_max) continue;
    work += size;
    late = std::max(late, piece.size());
  }
  CHECK(out.text.find(text.substr(0, text.size() - 2)) != std::string::npos);
  REQUIRE(out.calls.size() == 1);
  CHECK(out.calls[0].arguments.find("\"Bonn\"") != std::string::npos);
  CHECK(out.named_once);
  CHECK(work < 4 * gguf::parses_of_each_byte * size);
  CHECK(late < 4 * gguf::parsed_at_once_bytes_max / gguf::parses_of_each_byte);
}

TEST_CASE("a plan survives the wire") {
  auto model = load();
  const auto plan = tool_plan(*model);
  capnp::MallocMessageBuilder arena;
  write(arena.initRoot<msg::OutputPlan>(), plan);
  const auto back = read(arena.getRoot<msg::OutputPlan>().asReader());
  CHECK(stream(*model, back, tokens_of(*model, call)).calls.at(0).name == "get_weather");
  CHECK(model->make_constraint(back));
}

TEST_CASE("a lazy grammar lets text pass and holds a call to its schema") {
  auto model = load();
  auto limits = model->make_constraint(tool_plan(*model));
  REQUIRE(limits);
  for (const auto t : tokens_of(*model, "hello")) {
    CHECK((*limits)->allows(t));
    (*limits)->accept(t);
  }
  for (const auto t : tokens_of(*model, "\n<tool_call>\n{\"name\": \"get_")) (*limits)->accept(t);
  CHECK((*limits)->allows(tokens_of(*model, "xw").back()));
  CHECK_FALSE((*limits)->allows(tokens_of(*model, "xz").back()));
}

}  // namespace
}  // namespace troupe::text
