#include "gpu/text/gguf/chat.hpp"
#include "gpu/text/gguf/chat_output.hpp"
#include "gpu/text/gguf/gguf_file.hpp"
#include "gpu/text/gguf/grammar.hpp"
#include "gpu/text/gguf/plan_json.hpp"
#include "gpu/text/gguf/vocabulary.hpp"
#include "gpu/text/plain_output.hpp"
#include "gpu/text/text_model.hpp"

#include <fmt/format.h>
#include <llama.h>
#include <xxhash.h>

#include <exception>
#include <utility>

namespace troupe::text {
namespace {

std::string_view view(capnp::Text::Reader text) { return {text.begin(), text.size()}; }

class gguf_text_model final : public text_model {
 public:
  gguf_text_model(std::shared_ptr<const gguf::vocabulary> words, std::unique_ptr<gguf::chat> chat,
                  engine::position context_tokens)
      : words_(std::move(words)), chat_(std::move(chat)), context_tokens_(context_tokens) {}

  expected<rendered_prompt> render(msg::Completion::Reader request) const override;

  expected<std::vector<token_id>> tokenize(std::string_view text, bool add_special,
                                           bool parse_special) const override {
    return words_->tokenize(text, add_special, parse_special);
  }
  std::string piece(token_id token) const override { return words_->piece(token); }
  bool is_end(token_id token) const override { return words_->is_end(token); }
  std::uint32_t vocabulary() const override { return words_->size(); }

  expected<std::unique_ptr<constraint>> make_constraint(
      const engine::output_plan& plan) const override {
    if (plan.grammar.empty()) return std::unique_ptr<constraint>();
    return gguf::make_constraint(words_, plan);
  }

  std::unique_ptr<output_stream> make_output(const engine::output_plan& plan,
                                             std::span<const std::string> stops) const override {
    const auto plain = [&] {
      return make_plain_output([words = words_](token_id t) { return words->piece(t); }, plan.stops,
                               stops);
    };
    if (plan.parser_json.empty()) return plain();
    try {
      return gguf::make_chat_output(words_, plan, stops);
    } catch (const std::exception&) {
      return plain();  // a plan of another version: the text as it is, rather than nothing
    }
  }

 private:
  expected<void> render_chat(msg::Completion::Reader request, rendered_prompt& out) const;
  expected<void> render_text(msg::Completion::Reader request, rendered_prompt& out) const;
  expected<void> take_tokens(msg::Completion::Reader request, rendered_prompt& out) const;
  expected<void> add_schema(msg::Completion::Reader request, rendered_prompt& out) const;
  void make_bos_unique(std::vector<token_id>& tokens) const;
  expected<void> check(msg::Completion::Reader request, const rendered_prompt& prompt) const;

  std::shared_ptr<const gguf::vocabulary> words_;
  std::unique_ptr<gguf::chat> chat_;
  engine::position context_tokens_;
};

expected<rendered_prompt> gguf_text_model::render(msg::Completion::Reader request) const {
  rendered_prompt out;
  expected<void> done;
  switch (request.getPrompt().which()) {
  case msg::Completion::Prompt::NONE:
    return error{"internal_error", "a completion without a prompt cannot be rendered"};
  case msg::Completion::Prompt::MESSAGES:
    done = render_chat(request, out);
    break;
  case msg::Completion::Prompt::TEXT:
    done = render_text(request, out);
    break;
  case msg::Completion::Prompt::TOKENS:
    done = take_tokens(request, out);
    break;
  }
  if (!done) return done.error();
  if (auto fits = check(request, out); !fits) return fits.error();
  return out;
}

expected<void> gguf_text_model::render_chat(msg::Completion::Reader request,
                                            rendered_prompt& out) const {
  auto chat = chat_->render(request);
  if (!chat) return chat.error();
  auto tokens = words_->tokenize(chat->prompt, true, true);
  if (!tokens) return tokens.error();
  out.tokens = std::move(*tokens);
  make_bos_unique(out.tokens);
  out.plan = std::move(chat->plan);
  if (!chat->parses) return ok;
  auto spec = gguf::parser_spec_from_json(out.plan.parser_json);
  spec.id_seed = XXH3_64bits_withSeed(out.tokens.data(), out.tokens.size() * sizeof(token_id),
                                      request.getSampling().getSeed());
  out.plan.parser_json = gguf::to_json(spec);
  return ok;
}

expected<void> gguf_text_model::render_text(msg::Completion::Reader request,
                                            rendered_prompt& out) const {
  const auto text = view(request.getPrompt().getText());
  auto tokens = words_->tokenize(text, true, true);
  if (!tokens) return tokens.error();
  out.tokens = std::move(*tokens);
  make_bos_unique(out.tokens);
  out.echo_text = text;
  return add_schema(request, out);
}

expected<void> gguf_text_model::take_tokens(msg::Completion::Reader request,
                                            rendered_prompt& out) const {
  const auto tokens = request.getPrompt().getTokens();
  out.tokens.reserve(tokens.size());
  for (const auto t : tokens) {
    if (!words_->contains(t))
      return error{"invalid_token",
                   fmt::format("token id {} is outside the vocabulary of {}", t, words_->size()),
                   "prompt"};
    out.tokens.push_back(t);
    out.echo_text += words_->piece(t);
  }
  if (out.tokens.empty() && words_->bos()) out.tokens.push_back(*words_->bos());
  return add_schema(request, out);
}

expected<void> gguf_text_model::add_schema(msg::Completion::Reader request,
                                           rendered_prompt& out) const {
  const auto format = request.getResponseFormat();
  if (format.isText()) return ok;
  auto grammar = gguf::grammar_of_schema(
      format.isJsonObject() ? R"({"type": "object"})" : std::string(view(format.getJsonSchema())));
  if (!grammar) return grammar.error();
  out.plan.grammar = std::move(*grammar);
  if (auto limits = gguf::make_constraint(words_, out.plan); !limits) return limits.error();
  return ok;
}

/// The template or the client may have written it, too.
void gguf_text_model::make_bos_unique(std::vector<token_id>& tokens) const {
  if (!words_->bos()) return;
  while (tokens.size() > 1 && tokens[0] == *words_->bos() && tokens[1] == *words_->bos())
    tokens.erase(tokens.begin());
}

expected<void> gguf_text_model::check(msg::Completion::Reader request,
                                      const rendered_prompt& prompt) const {
  const auto* parameter = request.getIsChat() ? "messages" : "prompt";
  if (prompt.tokens.empty())
    return error{"empty_prompt", "the prompt is empty, and the model has no token that begins one",
                 parameter};
  if (prompt.tokens.size() + 1 > context_tokens_) {
    return error{"context_length_exceeded",
                 fmt::format("the prompt has {} tokens; with at least one for the answer that is "
                             "more than the model's context of {}",
                             prompt.tokens.size(), context_tokens_),
                 parameter};
  }
  for (const auto bias : request.getSampling().getLogitBias())
    if (!words_->contains(bias.getToken()))
      return error{"invalid_token",
                   fmt::format("token id {} is outside the vocabulary of {}", bias.getToken(),
                               words_->size()),
                   "logit_bias"};
  return ok;
}

}  // namespace

expected<std::shared_ptr<const text_model>> load_gguf_text_model(const std::string& path,
                                                                 const std::string& chat_template,
                                                                 engine::position context_tokens) {
  gguf::open_options how;
  how.vocabulary_only = true;
  auto opened = gguf::open(path, how);
  if (!opened) return opened.error();
  const std::shared_ptr<const llama_model> model(std::move(*opened));
  auto words = std::make_shared<const gguf::vocabulary>(model);
  if (words->size() == 0)
    return error{"model_corrupt", fmt::format("the model file {} has no vocabulary", path)};
  auto chat = gguf::chat::make(model.get(), chat_template, words);
  if (!chat) {
    auto why = chat.error();
    why.message = fmt::format("{} (model file {})", why.message, path);
    return why;
  }
  if (context_tokens == 0)
    context_tokens = static_cast<engine::position>(
        std::max(llama_model_n_ctx_train(model.get()), 0));
  return std::shared_ptr<const text_model>(
      std::make_shared<gguf_text_model>(std::move(words), std::move(*chat), context_tokens));
}

}  // namespace troupe::text
