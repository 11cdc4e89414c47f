#include "gpu/text/byte_text_model.hpp"

#include "gpu/text/plain_output.hpp"
#include "gpu/text/text_model.hpp"
#include "gpu/text/utf8.hpp"

#include <fmt/format.h>

#include <utility>

namespace troupe::text {
namespace {

constexpr std::string_view turn_start = "<|im_start|>";
constexpr std::string_view turn_end = "<|im_end|>";

std::string_view view(capnp::Text::Reader text) { return {text.begin(), text.size()}; }

class byte_text_model final : public text_model {
 public:
  explicit byte_text_model(engine::position context_tokens) : context_tokens_(context_tokens) {}

  using text_model::render;
  expected<rendered_prompt> render(msg::Completion::Reader request,
                                   const still_wanted& wanted) const override;
  expected<std::vector<token_id>> tokenize(std::string_view text, bool add_special,
                                           bool parse_special) const override;

  std::string piece(token_id token) const override {
    if (token >= 0 && token < byte_token_begin) return {static_cast<char>(token)};
    return {};
  }

  bool is_end(token_id token) const override {
    return token == byte_token_turn_end || token == byte_token_end;
  }
  std::uint32_t vocabulary() const override { return byte_vocabulary; }

  expected<std::unique_ptr<constraint>> make_constraint(
      const engine::output_plan& plan) const override {
    if (!plan.grammar.empty())
      return error{"invalid_schema", "the byte model of a simulated engine has no grammars",
                   "response_format"};
    return std::unique_ptr<constraint>();
  }

  std::unique_ptr<output_stream> make_output(const engine::output_plan& plan,
                                             std::span<const std::string> stops) const override {
    return make_plain_output([this](token_id token) { return piece(token); }, plan.stops, stops);
  }

 private:
  static void append(std::vector<token_id>& out, std::string_view text) {
    for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  }
  void append_turn(std::vector<token_id>& out, std::string_view role,
                   std::string_view content) const {
    out.push_back(byte_token_turn_start);
    append(out, role);
    append(out, "\n");
    append(out, content);
    out.push_back(byte_token_turn_end);
    append(out, "\n");
  }
  expected<void> render_messages(msg::Completion::Reader request, std::vector<token_id>& out) const;

  engine::position context_tokens_;
};

expected<std::vector<token_id>> byte_text_model::tokenize(std::string_view text, bool add_special,
                                                          bool parse_special) const {
  std::vector<token_id> out;
  out.reserve(text.size() + 1);
  if (add_special) out.push_back(byte_token_begin);
  while (!text.empty()) {
    if (parse_special && text.starts_with(turn_start)) {
      out.push_back(byte_token_turn_start);
      text.remove_prefix(turn_start.size());
    } else if (parse_special && text.starts_with(turn_end)) {
      out.push_back(byte_token_turn_end);
      text.remove_prefix(turn_end.size());
    } else {
      out.push_back(static_cast<unsigned char>(text.front()));
      text.remove_prefix(1);
    }
  }
  return out;
}

expected<void> byte_text_model::render_messages(msg::Completion::Reader request,
                                                std::vector<token_id>& out) const {
  if (request.getToolChoice() == msg::ToolChoice::REQUIRED ||
      request.getToolChoice() == msg::ToolChoice::FUNCTION)
    return error{"unsupported_parameter",
                 "the byte model of a simulated engine cannot be made to call a tool",
                 "tool_choice"};
  const auto tools = view(request.getToolsJson());
  if (!tools.empty() && request.getToolChoice() != msg::ToolChoice::NONE)
    append_turn(out, "tools", tools);
  for (const auto message : request.getPrompt().getMessages()) {
    std::string content(view(message.getContent()));
    content += view(message.getToolCallsJson());
    append_turn(out, view(message.getRole()), content);
  }
  out.push_back(byte_token_turn_start);
  append(out, "assistant\n");
  return ok;
}

expected<rendered_prompt> byte_text_model::render(msg::Completion::Reader request,
                                                  const still_wanted& wanted) const {
  if (!wanted()) return error{"cancelled", "nobody waits for the prompt any more"};
  if (!request.getResponseFormat().isText())
    return error{"unsupported_parameter", "the byte model of a simulated engine has no grammars",
                 "response_format"};
  rendered_prompt out;
  out.tokens.push_back(byte_token_begin);
  const auto prompt = request.getPrompt();
  switch (prompt.which()) {
  case msg::Completion::Prompt::NONE:
    return error{"internal_error", "a completion without a prompt cannot be rendered", {}};
  case msg::Completion::Prompt::MESSAGES:
    if (auto rendered = render_messages(request, out.tokens); !rendered) return rendered.error();
    break;
  case msg::Completion::Prompt::TEXT:
    append(out.tokens, view(prompt.getText()));
    out.echo_text = view(prompt.getText());
    break;
  case msg::Completion::Prompt::TOKENS: {
    utf8_assembler echo;
    out.tokens.clear();
    for (const auto token : prompt.getTokens()) {
      if (token < 0 || token >= static_cast<token_id>(byte_vocabulary))
        return error{
            "invalid_token",
            fmt::format("token id {} is outside the vocabulary of {}", token, byte_vocabulary),
            "prompt"};
      out.tokens.push_back(token);
      out.echo_text += echo.push(piece(token));
    }
    out.echo_text += echo.finish();
    if (out.tokens.empty()) out.tokens.push_back(byte_token_begin);
    break;
  }
  }
  if (out.tokens.size() + 1 > context_tokens_)
    return error{"context_length_exceeded",
                 fmt::format("the prompt has {} tokens; with at least one for the answer that is "
                             "more than the model's context of {}",
                             out.tokens.size(), context_tokens_),
                 request.getIsChat() ? "messages" : "prompt"};
  return out;
}

}  // namespace

std::shared_ptr<const text_model> make_byte_text_model(engine::position context_tokens) {
  return std::make_shared<byte_text_model>(context_tokens);
}

}  // namespace troupe::text
