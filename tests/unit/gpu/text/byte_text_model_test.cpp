#include "gpu/text/byte_text_model.hpp"
#include "gpu/text/output_plan.hpp"
#include "gpu/text/text_model.hpp"

#include <capnp/message.h>
#include <catch2/catch.hpp>

using namespace troupe;
using namespace troupe::text;

namespace {

std::string text_of(const text_model& model, const std::vector<token_id>& tokens) {
  std::string out;
  for (const auto t : tokens)
    out += t == byte_token_turn_start ? "<" : t == byte_token_turn_end ? ">" : model.piece(t);
  return out;
}

}  // namespace

TEST_CASE("byte model: messages are rendered like ChatML and begin exactly once") {
  capnp::MallocMessageBuilder message;
  auto request = message.initRoot<msg::Completion>();
  auto messages = request.initPrompt().initMessages(2);
  messages[0].setRole("system");
  messages[0].setContent("be brief");
  messages[1].setRole("user");
  messages[1].setContent("h\xC3\xA9");
  const auto model = make_byte_text_model(100);
  const auto prompt = model->render(request);
  REQUIRE(prompt);
  CHECK(prompt->tokens.front() == byte_token_begin);
  CHECK(std::count(prompt->tokens.begin(), prompt->tokens.end(), byte_token_begin) == 1);
  CHECK(text_of(*model, prompt->tokens) == "<system\nbe brief>\n<user\nh\xC3\xA9>\n<assistant\n");
}

TEST_CASE(
    "byte model: prompts beyond the context, foreign tokens and grammars are refused by name") {
  capnp::MallocMessageBuilder message;
  auto request = message.initRoot<msg::Completion>();
  request.initPrompt().setText("0123456789");
  CHECK(make_byte_text_model(12)->render(request));
  const auto refused = make_byte_text_model(11)->render(request);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == "context_length_exceeded");
  CHECK(refused.error().message.find("11 tokens") != std::string::npos);

  auto tokens = request.initPrompt().initTokens(1);
  tokens.set(0, 260);
  const auto foreign = make_byte_text_model(11)->render(request);
  REQUIRE_FALSE(foreign);
  CHECK(foreign.error().parameter == "prompt");

  request.initPrompt().setText("x");
  request.initResponseFormat().setJsonObject();
  const auto grammar = make_byte_text_model(11)->render(request);
  REQUIRE_FALSE(grammar);
  CHECK(grammar.error().parameter == "response_format");
}

TEST_CASE("byte model: the echo of tokens is whole characters, whatever bytes they are") {
  const auto echo_of = [](const std::string& bytes) {
    capnp::MallocMessageBuilder message;
    auto request = message.initRoot<msg::Completion>();
    auto tokens = request.initPrompt().initTokens(static_cast<unsigned>(bytes.size()));
    for (unsigned i = 0; i < tokens.size(); ++i)
      tokens.set(i, static_cast<unsigned char>(bytes[i]));
    const auto prompt = make_byte_text_model(100)->render(request);
    REQUIRE(prompt);
    return prompt->echo_text;
  };
  CHECK(echo_of("a\xC3") == "a\xEF\xBF\xBD");
  CHECK(echo_of("\xFFz") == "\xEF\xBF\xBDz");
  CHECK(echo_of("\xC3\xA9") == "\xC3\xA9");
}

TEST_CASE("byte model: an output stream never splits characters and ends before a stop string") {
  const auto model = make_byte_text_model(100);
  const std::vector<std::string> stops{"END"};
  auto stream = model->make_output({}, stops);
  std::string text;
  for (const unsigned char c : std::string("a\xC3")) text += stream->push(c).text;
  CHECK(text == "a");
  text += stream->push(0xA9).text;
  CHECK(text == "a\xC3\xA9");
  CHECK(stream->push('E').text.empty());
  CHECK(stream->push('N').text.empty());
  const auto last = stream->push('D');
  CHECK(last.stopped);
  CHECK(last.stop_text == "END");
  CHECK(last.text.empty());
  CHECK(stream->finish().text.empty());
  CHECK(stream->emitted_bytes() == 3);
}

TEST_CASE("byte model: control tokens have no text, and two of them end generation") {
  const auto model = make_byte_text_model(100);
  CHECK(model->piece(byte_token_turn_end).empty());
  CHECK(model->is_end(byte_token_turn_end));
  CHECK(model->is_end(byte_token_end));
  CHECK_FALSE(model->is_end(byte_token_begin));
  CHECK_FALSE(model->is_end('a'));
}

TEST_CASE("output plan: survives the wire") {
  engine::output_plan plan;
  plan.grammar = "root ::= \"a\"";
  plan.grammar_lazy = true;
  plan.grammar_triggers_json = "[{}]";
  plan.preserved_tokens = {1, -2, 258};
  plan.parser_json = "{}";
  plan.stops = {"a", ""};
  plan.generation_prompt = std::string("x\0y", 3);
  capnp::MallocMessageBuilder message;
  write(message.initRoot<msg::OutputPlan>(), plan);
  const auto back = read(message.getRoot<msg::OutputPlan>().asReader());
  CHECK(back.grammar == plan.grammar);
  CHECK(back.grammar_lazy);
  CHECK(back.grammar_triggers_json == plan.grammar_triggers_json);
  CHECK(back.preserved_tokens == plan.preserved_tokens);
  CHECK(back.parser_json == plan.parser_json);
  CHECK(back.stops == plan.stops);
  CHECK(back.generation_prompt == plan.generation_prompt);
}
