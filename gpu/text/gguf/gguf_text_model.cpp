#include "gpu/text/gguf/chat.hpp"
#include "gpu/text/gguf/chat_output.hpp"
#include "gpu/text/gguf/gguf_file.hpp"
#include "gpu/text/gguf/grammar.hpp"
#include "gpu/text/gguf/plan_json.hpp"
#include "gpu/text/gguf/vocabulary.hpp"
#include "gpu/text/plain_output.hpp"
#include "gpu/text/text_model.hpp"
#include "gpu/text/utf8.hpp"

#include <fmt/format.h>
#include <llama.h>
#include <xxhash.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace troupe::text {
namespace {

std::string_view view(capnp::Text::Reader text) { return {text.begin(), text.size()}; }

/// Where the prompt comes from.
const char* parameter_of(msg::Completion::Reader request) {
  return request.getIsChat() ? "messages" : "prompt";
}

error with_parameter(error why, msg::Completion::Reader request) {
  why.parameter = parameter_of(request);
  return why;
}

class gguf_text_model final : public text_model {
 public:
  gguf_text_model(std::shared_ptr<const gguf::vocabulary> words, std::unique_ptr<gguf::chat> chat,
                  engine::position context_tokens)
      : words_(std::move(words)), chat_(std::move(chat)), context_tokens_(context_tokens) {}

  using text_model::render;
  expected<rendered_prompt> render(msg::Completion::Reader request,
                                   const still_wanted& wanted) const override;

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
  /// A request on its way, and whether anybody still waits for it.
  struct rendering {
    msg::Completion::Reader request;
    const still_wanted& wanted;
    rendered_prompt out;
  };

  expected<void> render_chat(rendering& r) const;
  expected<void> render_text(rendering& r) const;
  expected<void> take_tokens(rendering& r) const;
  expected<void> tokenize_prompt(rendering& r, std::string_view text) const;
  expected<void> add_schema(rendering& r) const;
  void make_bos_unique(std::vector<token_id>& tokens) const;
  expected<void> check_biases(msg::Completion::Reader request) const;
  expected<void> check_length(const rendering& r, std::size_t tokens,
                              std::string_view at_least = {}) const;

  std::shared_ptr<const gguf::vocabulary> words_;
  std::unique_ptr<gguf::chat> chat_;
  engine::position context_tokens_;
};

/// Each step can take a client's megabytes: it is not begun for one that has left.
expected<void> before_a_step(const still_wanted& wanted) {
  if (!wanted()) return error{"cancelled", "nobody waits for the prompt any more"};
  return ok;
}

expected<rendered_prompt> gguf_text_model::render(msg::Completion::Reader request,
                                                  const still_wanted& wanted) const {
  rendering r{request, wanted, {}};
  if (auto good = check_biases(request); !good) return good.error();
  expected<void> done;
  switch (request.getPrompt().which()) {
  case msg::Completion::Prompt::NONE:
    return error{"internal_error", "a completion without a prompt cannot be rendered"};
  case msg::Completion::Prompt::MESSAGES:
    done = render_chat(r);
    break;
  case msg::Completion::Prompt::TEXT:
    done = render_text(r);
    break;
  case msg::Completion::Prompt::TOKENS:
    done = take_tokens(r);
    break;
  }
  if (!done) return done.error();
  return std::move(r.out);
}

expected<void> gguf_text_model::render_chat(rendering& r) const {
  if (auto wanted = before_a_step(r.wanted); !wanted) return wanted;
  auto chat = chat_->render(r.request);
  if (!chat) return chat.error();
  if (auto done = tokenize_prompt(r, chat->prompt); !done) return done;
  auto& out = r.out;
  out.plan = std::move(chat->plan);
  if (!chat->parses) return ok;
  auto spec = gguf::parser_spec_from_json(out.plan.parser_json);
  spec.id_seed = XXH3_64bits_withSeed(out.tokens.data(), out.tokens.size() * sizeof(token_id),
                                      r.request.getSampling().getSeed());
  out.plan.parser_json = gguf::to_json(spec);
  return ok;
}

expected<void> gguf_text_model::render_text(rendering& r) const {
  const auto text = view(r.request.getPrompt().getText());
  if (auto done = tokenize_prompt(r, text); !done) return done;
  r.out.echo_text = text;
  return add_schema(r);
}

expected<void> gguf_text_model::take_tokens(rendering& r) const {
  const auto tokens = r.request.getPrompt().getTokens();
  auto& out = r.out;
  if (tokens.size() == 0 && words_->bos()) out.tokens.push_back(*words_->bos());
  if (auto fits = check_length(r, std::max<std::size_t>(tokens.size(), out.tokens.size())); !fits)
    return fits;
  out.tokens.reserve(tokens.size());
  utf8_assembler echo;
  for (const auto t : tokens) {
    if (!words_->contains(t))
      return error{"invalid_token",
                   fmt::format("token id {} is outside the vocabulary of {}", t, words_->size()),
                   "prompt"};
    out.tokens.push_back(t);
    out.echo_text += echo.push(words_->piece(t));
  }
  out.echo_text += echo.finish();
  return add_schema(r);
}

/// Its length is looked at before anything else is done with the tokens.
expected<void> gguf_text_model::tokenize_prompt(rendering& r, std::string_view text) const {
  if (auto wanted = before_a_step(r.wanted); !wanted) return wanted;
  text = words_->with_one_bos(text);
  if (const auto least = words_->tokens_min(text); least > context_tokens_)
    return check_length(r, least, "at least ");
  bool whole = true;
  const auto more = [&](std::span<const token_id> so_far) {
    whole = r.wanted() && so_far.size() <= context_tokens_ + 2U;  // two that begin are made one
    return whole;
  };
  auto tokens = words_->tokenize(text, true, true, more);
  if (!tokens) return with_parameter(tokens.error(), r.request);
  if (auto wanted = before_a_step(r.wanted); !wanted) return wanted;
  r.out.tokens = std::move(*tokens);
  make_bos_unique(r.out.tokens);
  return check_length(r, r.out.tokens.size(), whole ? "" : "at least ");
}

expected<void> gguf_text_model::add_schema(rendering& r) const {
  const auto format = r.request.getResponseFormat();
  if (format.isText()) return ok;
  if (auto wanted = before_a_step(r.wanted); !wanted) return wanted;
  auto held = gguf::hold_schema(format.isJsonObject() ? R"({"type": "object"})"
                                                      : std::string(view(format.getJsonSchema())));
  if (!held) return held.error();
  r.out.plan.grammar = std::move(held->grammar);
  if (auto wanted = before_a_step(r.wanted); !wanted) return wanted;
  if (auto limits = gguf::make_constraint(words_, r.out.plan); !limits) return limits.error();
  return ok;
}

/// The template or the client may have written it, too; a client also a million times.
void gguf_text_model::make_bos_unique(std::vector<token_id>& tokens) const {
  if (!words_->bos()) return;
  const auto other = std::find_if(tokens.begin(), tokens.end(),
                                  [bos = *words_->bos()](token_id t) { return t != bos; });
  if (other - tokens.begin() > 1) tokens.erase(tokens.begin(), other - 1);
}

expected<void> gguf_text_model::check_length(const rendering& r, std::size_t tokens,
                                             std::string_view at_least) const {
  const auto* parameter = parameter_of(r.request);
  if (tokens == 0)
    return error{"empty_prompt", "the prompt is empty, and the model has no token that begins one",
                 parameter};
  if (tokens + 1 > context_tokens_) {
    return error{"context_length_exceeded",
                 fmt::format("the prompt has {}{} tokens; with at least one for the answer that is "
                             "more than the model's context of {}",
                             at_least, tokens, context_tokens_),
                 parameter};
  }
  return ok;
}

expected<void> gguf_text_model::check_biases(msg::Completion::Reader request) const {
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
