// Chat templates of real models, as llama.cpp's sources bring them.

#include "text_fixture.hpp"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

namespace troupe::text {
namespace {

using namespace testing;

std::string source_of(const std::filesystem::path& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

bool have_templates() {
  if (std::filesystem::is_directory(TROUPE_CHAT_TEMPLATES)) return true;
  std::cout << "skipped: there are no chat templates in " << TROUPE_CHAT_TEMPLATES
            << " (made by a fresh tools/setup)\n";
  return false;
}

struct model_template {
  const char* file;
  const char* call;  ///< how it writes a call
};

const model_template with_tools[] = {
    {"Qwen-Qwen2.5-7B-Instruct.jinja", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
                                       "{\"place\": \"Bonn\"}}\n</tool_call>"},
    {"Qwen-Qwen3-0.6B.jinja", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"place\": "
                              "\"Bonn\"}}\n</tool_call>"},
    {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja",
     "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"place\": "
     "\"Bonn\"}}\n</tool_call>"},
    {"meta-llama-Llama-3.1-8B-Instruct.jinja",
     "{\"name\": \"get_weather\", \"parameters\": {\"place\": \"Bonn\"}}"},
    {"meta-llama-Llama-3.2-3B-Instruct.jinja",
     "{\"name\": \"get_weather\", \"parameters\": {\"place\": \"Bonn\"}}"},
    {"mistralai-Mistral-Nemo-Instruct-2407.jinja",
     "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"place\": \"Bonn\"}, \"id\": "
     "\"123456789\"}]"},
    {"ibm-granite-granite-4.0.jinja", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
                                      "{\"place\": \"Bonn\"}}\n</tool_call>"},
    {"openai-gpt-oss-120b.jinja", nullptr},
    {"deepseek-ai-DeepSeek-V3.1.jinja", nullptr},
    {"GLM-4.6.jinja", nullptr},
    {"moonshotai-Kimi-K2.jinja", nullptr},
    {"HuggingFaceTB-SmolLM3-3B.jinja", nullptr},
};

TEST_CASE("templates of real models render chats, describe tools and read calls") {
  if (!have_templates()) return;
  for (const auto& [file, call] : with_tools) {
    INFO(file);
    auto model = load(source_of(std::filesystem::path(TROUPE_CHAT_TEMPLATES) / file));
    request plain{{"system", "be short"}, {"user", "hello world"}};
    const auto text = text_of(*model, rendered(*model, plain).tokens);
    CHECK(text.find("be short") < text.find("hello world"));

    request tools{{"user", "weather?"}};
    tools.root.setToolsJson(weather_tools);
    const auto out = rendered(*model, tools);
    CHECK(text_of(*model, out.tokens).find("get_time") != std::string::npos);
    CHECK(model->make_constraint(out.plan));
    if (call == nullptr) continue;
    const auto answer = stream(*model, out.plan, tokens_of(*model, call));
    REQUIRE(answer.calls.size() == 1);
    CHECK(answer.named_once);
    CHECK(answer.calls[0].name == "get_weather");
    CHECK(answer.calls[0].arguments.find("Bonn") != std::string::npos);
    CHECK_FALSE(answer.calls[0].id.empty());
  }
}

TEST_CASE("templates without tools describe them all the same") {
  if (!have_templates()) return;
  for (const auto* file : {"google-gemma-2-2b-it.jinja", "microsoft-Phi-3.5-mini-instruct.jinja"}) {
    INFO(file);
    auto model = load(source_of(std::filesystem::path(TROUPE_CHAT_TEMPLATES) / file));
    request r{{"user", "weather?"}};
    r.root.setToolsJson(weather_tools);
    const auto out = rendered(*model, r);
    CHECK(text_of(*model, out.tokens).find("get_time") != std::string::npos);
    const auto answer = stream(
        *model, out.plan,
        tokens_of(*model, "<tool_call>\n{\"name\": \"get_time\", \"arguments\": {\"place\": "
                          "\"Bonn\"}}\n</tool_call>"));
    REQUIRE(answer.calls.size() == 1);
    CHECK(answer.calls[0].name == "get_time");
  }
}

TEST_CASE("a thinking template: thoughts apart from the answer") {
  if (!have_templates()) return;
  auto model = load(
      source_of(std::filesystem::path(TROUPE_CHAT_TEMPLATES) / "Qwen-Qwen3-0.6B.jinja"));
  request r{{"user", "hi"}};
  const auto plan = rendered(*model, r).plan;
  const auto out = stream(*model, plan,
                          tokens_of(*model, "<think>\nlet me see\n</think>\n\nhello there"));
  CHECK(out.reasoning.find("let me see") != std::string::npos);
  CHECK(out.text.find("hello there") != std::string::npos);
  CHECK(out.text.find("think") == std::string::npos);
  CHECK(out.emitted_bytes == out.text.size());
}

TEST_CASE("a thinking template: the answer after the thoughts follows its schema exactly") {
  if (!have_templates()) return;
  auto model = load(
      source_of(std::filesystem::path(TROUPE_CHAT_TEMPLATES) / "Qwen-Qwen3-0.6B.jinja"));
  request r{{"user", "hi"}};
  r.root.getResponseFormat().setJsonSchema(
      R"({"type":"object","properties":{"n":{"type":"integer","minimum":105},"s":{"type":"string","pattern":"^\\d$"}},"required":["n","s"],"additionalProperties":true})");
  const auto plan = rendered(*model, r).plan;
  const auto answer = [](const std::string& n, const std::string& s, const std::string& more = {}) {
    return "<think>\nlet me see\n</think>\n\n{\"n\": " + n + ", \"s\": " + s + more + "}";
  };
  CHECK(takes(*model, plan, answer("105", "\"7\"")));
  CHECK(takes(*model, plan, answer("105", "\"7\"", ", \"x\": 1")));
  CHECK_FALSE(takes(*model, plan, answer("15", "\"7\"")));
  CHECK_FALSE(takes(*model, plan, answer("105", "\"a\"")));
  CHECK_FALSE(takes(*model, plan, answer("105", "\"7\"", ", \"\\\": 1")));
}

TEST_CASE("every template either works or says why not") {
  if (!have_templates()) return;
  std::size_t good = 0;
  std::size_t all = 0;
  for (const auto& entry : std::filesystem::directory_iterator(TROUPE_CHAT_TEMPLATES)) {
    if (entry.path().extension() != ".jinja") continue;
    ++all;
    INFO(entry.path().filename());
    auto model = load_gguf_text_model(TROUPE_TINY_GGUF, source_of(entry.path()), context_tokens);
    if (!model) {
      CHECK(model.error().code == "template_unknown");
      continue;
    }
    request r{{"user", "hi"}};
    r.root.setToolsJson(weather_tools);
    auto out = (*model)->render(r.root.asReader());
    if (!out) WARN(entry.path().filename() << ": " << out.error().message);
    if (out) ++good;
  }
  CHECK(good >= all - 2);
}

}  // namespace
}  // namespace troupe::text
