#include "text_fixture.hpp"

#include <filesystem>
#include <fstream>
#include <iostream>

namespace troupe::text {
namespace {

using namespace testing;

std::size_t count(const std::vector<token_id>& tokens, token_id t) {
  return static_cast<std::size_t>(std::count(tokens.begin(), tokens.end(), t));
}

constexpr token_id bos = 1;  // of the tiny model

TEST_CASE("a chat is rendered by the model's own template") {
  auto model = load();
  request r{{"system", "be short"}, {"user", "hello world"}};
  const auto out = rendered(*model, r);
  CHECK(count(out.tokens, bos) == 1);
  CHECK(out.tokens.front() == bos);
  const auto text = text_of(*model, out.tokens);
  CHECK(text.find("be short") < text.find("hello world"));
  CHECK(out.plan.grammar.empty());
  CHECK(out.plan.parser_json.empty());
  request other{{"system", "be short"}, {"user", "hello world!"}};
  CHECK(rendered(*model, other).tokens != out.tokens);
}

TEST_CASE("a developer message is a system message where the template knows none") {
  auto model = load();
  request a{{"developer", "be short"}, {"user", "hi"}};
  request b{{"system", "be short"}, {"user", "hi"}};
  CHECK(rendered(*model, a).tokens == rendered(*model, b).tokens);
}

TEST_CASE("the beginning token comes once, whoever writes it") {
  auto model = load();
  request chat{{"user", "hi"}};
  CHECK(count(rendered(*load("gemma"), chat).tokens, bos) == 1);
  CHECK(count(rendered(*load("chatml"), chat).tokens, bos) == 1);
  CHECK(
      count(rendered(*load("{{ bos_token }}{{ bos_token }}{{ messages[0].content }}"), chat).tokens,
            bos) == 1);
  request text;
  text.root.getPrompt().setText("<s>hello");
  const auto once = rendered(*model, text).tokens;
  text.root.getPrompt().setText("hello");
  CHECK(count(once, bos) == 1);
  CHECK(count(rendered(*model, text).tokens, bos) == 1);
}

TEST_CASE("a million beginning tokens are one, as quickly as any prompt") {
  auto model = load();
  constexpr std::size_t times = 1'000'000;
  std::string begins;
  for (std::size_t i = 0; i < times; ++i) begins += "<s>";
  request r;
  r.root.getPrompt().setText(begins + "hello");
  const auto out = rendered(*model, r).tokens;
  CHECK(count(out, bos) == 1);
  r.root.getPrompt().setText("<s>hello");
  CHECK(out == rendered(*model, r).tokens);
  r.root.getPrompt().setText(begins);
  CHECK(rendered(*model, r).tokens == std::vector<token_id>{bos});
  r.root.getPrompt().setText("hello" + begins);
  CHECK(render_error(*model, r).code == "context_length_exceeded");
}

TEST_CASE("what nobody wants any more is not rendered to its end") {
  auto model = load();
  request text;
  text.root.getPrompt().setText("hello");
  request chat{{"user", "hi"}};
  for (auto* r : {&text, &chat}) {
    const auto out = model->render(r->root.asReader(), [] { return false; });
    REQUIRE_FALSE(out);
    CHECK(out.error().code == "cancelled");
  }
}

TEST_CASE("text prompts and token prompts") {
  auto model = load();
  request r;
  r.root.getPrompt().setText("the world");
  const auto text = rendered(*model, r);
  CHECK(text.tokens.front() == bos);
  CHECK(text.echo_text == "the world");

  auto list = r.root.getPrompt().initTokens(3);
  list.set(0, 300), list.set(1, 301), list.set(2, 302);
  const auto tokens = rendered(*model, r);
  CHECK(tokens.tokens == std::vector<token_id>{300, 301, 302});
  CHECK(tokens.echo_text == text_of(*model, tokens.tokens));

  r.root.getPrompt().initTokens(0);
  CHECK(rendered(*model, r).tokens == std::vector<token_id>{bos});
  r.root.getPrompt().setText("");
  CHECK(rendered(*model, r).tokens == std::vector<token_id>{bos});
}

TEST_CASE("the echo of tokens is whole characters, whatever bytes they are") {
  auto model = load();
  std::vector<token_id> parts;  // tokens that begin a character of two bytes, and go on with one
  for (const char byte : {'\xC3', '\xA9'})
    for (token_id t = 0; t < static_cast<token_id>(model->vocabulary()); ++t)
      if (model->piece(t) == std::string(1, byte)) {
        parts.push_back(t);
        break;
      }
  REQUIRE(parts.size() == 2);
  const auto echo_of = [&](const std::vector<token_id>& tokens) {
    request r;
    auto list = r.root.getPrompt().initTokens(static_cast<unsigned>(tokens.size()));
    for (unsigned i = 0; i < list.size(); ++i) list.set(i, tokens[i]);
    return rendered(*model, r).echo_text;
  };
  CHECK(echo_of({parts[0]}) == "\xEF\xBF\xBD");
  CHECK(echo_of({parts[1], 300}) == "\xEF\xBF\xBD" + model->piece(300));
  CHECK(echo_of(parts) == "\xC3\xA9");
}

TEST_CASE("token ids outside the vocabulary are refused") {
  auto model = load();
  for (const auto id : {-1, static_cast<int>(model->vocabulary()), 2'000'000'000}) {
    request r;
    r.root.getPrompt().initTokens(1).set(0, id);
    const auto why = render_error(*model, r);
    CHECK(why.code == "invalid_token");
    CHECK(why.parameter == "prompt");
    request biased{{"user", "hi"}};
    biased.root.getSampling().initLogitBias(1)[0].setToken(id);
    CHECK(render_error(*model, biased).parameter == "logit_bias");
  }
}

TEST_CASE("a prompt that leaves no room for an answer is refused with both numbers") {
  auto model = load_gguf_text_model(TROUPE_TINY_GGUF, "", 16);
  REQUIRE(model);
  request r;
  auto list = r.root.getPrompt().initTokens(15);
  for (unsigned i = 0; i < 15; ++i) list.set(i, 300);
  CHECK(rendered(**model, r).tokens.size() == 15);
  list = r.root.getPrompt().initTokens(16);
  for (unsigned i = 0; i < 16; ++i) list.set(i, 300);
  const auto why = render_error(**model, r);
  CHECK(why.code == "context_length_exceeded");
  CHECK(why.message.find("16 tokens") != std::string::npos);
  CHECK(why.parameter == "prompt");
}

TEST_CASE("templates: names, sources and nonsense") {
  CHECK(load_gguf_text_model(TROUPE_TINY_GGUF, "nonesuch", 100).error().code == "template_unknown");
  CHECK(load_gguf_text_model(TROUPE_TINY_GGUF, "{% if %}", 100).error().code == "template_unknown");
  CHECK(load_gguf_text_model("/nowhere.gguf", "", 100).error().code == "model_missing");
  request r{{"user", "hi"}};
  CHECK(rendered(*load("llama3"), r).tokens != rendered(*load("gemma"), r).tokens);
  request odd{{"user", "hi"}};
  const auto why = render_error(*load("{{ raise_exception('roles must alternate') }}"), odd);
  CHECK(why.code == "template_failed");
  CHECK(why.message.find("roles must alternate") != std::string::npos);
}

TEST_CASE("the gemma template: roles, system text, ends of turns") {
  auto model = load("gemma");
  request r{{"system", "be short"}, {"user", "one"}, {"assistant", "two"}, {"user", "three"}};
  CHECK(text_of(*model, rendered(*model, r).tokens)
            .find("<start_of_turn>user\nbe "
                  "short\n\none<end_of_turn>\n<start_of_turn>model\ntwo<end_of_turn>\n"
                  "<start_of_turn>user\nthree<end_of_turn>\n<start_of_turn>model\n") !=
        std::string::npos);
}

TEST_CASE("template arguments reach the template") {
  auto model = load("{{ messages[0].content }} {{ mood }}");
  request r{{"user", "hi"}};
  r.root.setChatTemplateKwargsJson(R"({"mood": "cheerful"})");
  CHECK(text_of(*model, rendered(*model, r).tokens).find("cheerful") != std::string::npos);
  for (const auto* bad : {"[1]", "{", R"({"enable_thinking": "yes"})"}) {
    r.root.setChatTemplateKwargsJson(bad);
    const auto why = render_error(*model, r);
    CHECK(why.code == "invalid_template_arguments");
    CHECK(why.parameter == "chat_template_kwargs");
  }
}

TEST_CASE("tools: what is wrong with them is said by parameter") {
  auto model = load();
  const auto refused = [&](const char* tools, msg::ToolChoice choice, const char* name = "") {
    request r{{"user", "hi"}};
    r.root.setToolsJson(tools);
    r.root.setToolChoice(choice);
    r.root.setToolName(name);
    return render_error(*model, r).parameter;
  };
  CHECK(refused("[", msg::ToolChoice::AUTO) == "tools");
  CHECK(refused(R"([{"type": "web_search"}])", msg::ToolChoice::AUTO) == "tools");
  CHECK(refused("", msg::ToolChoice::REQUIRED) == "tool_choice");
  CHECK(refused(weather_tools, msg::ToolChoice::FUNCTION, "nonesuch") ==
        "tool_choice.function.name");
  CHECK(
      refused(
          R"([{"type": "function", "function": {"name": "f", "parameters": {"$ref": "#/nowhere"}}}])",
          msg::ToolChoice::AUTO) == "tools[0].function.parameters");
  request bad_calls{{"user", "hi"}, {"assistant", ""}};
  bad_calls.root.getPrompt().getMessages()[1].setToolCallsJson("[{}]");
  CHECK(render_error(*model, bad_calls).parameter == "messages[1].tool_calls");
}

TEST_CASE(
    "a conversation with calls and results is rendered, by templates with tools and without") {
  for (const auto* which : {"", "gemma", "chatml"}) {
    INFO("template \"" << which << '"');
    auto model = load(which);
    request r{{"user", "weather?"}, {"assistant", ""}, {"tool", "it rains"}};
    r.root.setToolsJson(weather_tools);
    auto messages = r.root.getPrompt().getMessages();
    messages[1].setToolCallsJson(
        R"([{"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"place\": \"Bonn\"}"}}])");
    messages[2].setToolCallId("call_1");
    const auto out = rendered(*model, r);
    const auto text = text_of(*model, out.tokens);
    CHECK(text.find("get_time") != std::string::npos);  // tools are described
    CHECK(text.find("Bonn") < text.find("it rains"));
    CHECK(out.plan.grammar_lazy);
    CHECK_FALSE(out.plan.parser_json.empty());
    r.root.setToolChoice(msg::ToolChoice::NONE);
    CHECK(rendered(*model, r).plan.grammar.empty());
  }
}

TEST_CASE("the real model: a base model chats with a template, and says what it lacks without") {
  if (!std::filesystem::exists(TROUPE_GEMMA_GGUF)) {
    std::cout << "skipped: the model " << TROUPE_GEMMA_GGUF
              << " is not there (tools/setup fetches it)\n";
    return;
  }
  request r{{"user", "hi"}};
  const auto why = render_error(*load("", TROUPE_GEMMA_GGUF), r);
  CHECK(why.code == "no_chat_template");
  CHECK(why.message.find("chat_template") != std::string::npos);
  auto model = load("gemma", TROUPE_GEMMA_GGUF);
  const auto tokens = rendered(*model, r).tokens;
  // <bos> <start_of_turn> user \n hi <end_of_turn> \n <start_of_turn> model \n
  CHECK(tokens.size() == 10);
  CHECK(tokens[0] == 2);
  CHECK(tokens[1] == 105);
  CHECK(model->is_end(106));
}

}  // namespace
}  // namespace troupe::text
