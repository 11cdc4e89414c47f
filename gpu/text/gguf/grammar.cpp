#include "gpu/text/gguf/grammar.hpp"

#include "gpu/text/gguf/plan_json.hpp"

#include <fmt/format.h>
#include <json-schema-to-grammar.h>
#include <json.h>
#include <llama.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <exception>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::gguf {
namespace {

constexpr auto schema_parameter = "response_format.json_schema";
constexpr auto root_rule = "root";

error invalid_schema(std::string why) {
  return {"invalid_schema", "the output cannot be constrained: " + std::move(why),
          schema_parameter};
}

struct sampler_deleter {
  void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
};
using sampler_ptr = std::unique_ptr<llama_sampler, sampler_deleter>;

class grammar_constraint final : public text::constraint {
 public:
  grammar_constraint(std::shared_ptr<const vocabulary> words, sampler_ptr grammar)
      : words_(std::move(words)), grammar_(std::move(grammar)) {}

  bool allows(token_id token) override {
    if (broken_) return words_->is_end(token);
    llama_token_data one{token, 0, 0};
    llama_token_data_array list{&one, 1, -1, false};
    llama_sampler_apply(grammar_.get(), &list);
    return std::isfinite(one.logit);
  }

  /// What refuses a character refuses all tokens that begin with it, so that of a large vocabulary
  /// only few tokens have to be tried against each way on which the grammar could go on.
  void mask(std::span<std::pair<token_id, float>> candidates) override {
    const auto& leaders = words_->leaders();
    const bool many = !broken_ && candidates.size() > 2 * leaders.size();
    if (many) {
      begins_.assign(words_->size(), true);
      scratch_.clear();
      for (const auto t : leaders) scratch_.push_back({t, 0, 0});
      apply();
      for (const auto& x : scratch_)
        begins_[static_cast<std::size_t>(x.id)] = std::isfinite(x.logit);
    }
    scratch_.clear();
    places_.clear();
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      auto& [id, logit] = candidates[i];
      if (broken_ ? !words_->is_end(id)
                  : many && !begins_[static_cast<std::size_t>(words_->lead(id))]) {
        logit = forbidden;
        continue;
      }
      // Its own logits don't matter here: only which of them are taken away.
      scratch_.push_back({id, 0, 0});
      places_.push_back(i);
    }
    if (!broken_) apply();
    for (std::size_t i = 0; i < scratch_.size(); ++i)
      if (!std::isfinite(scratch_[i].logit)) candidates[places_[i]].second = forbidden;
  }

  /// A token that the grammar doesn't allow breaks it: from then on only the end may come, so that
  /// nothing is called a valid answer that isn't.
  void accept(token_id token) override {
    if (broken_) return;
    try {
      llama_sampler_accept(grammar_.get(), token);
    } catch (const std::exception&) {
      broken_ = true;
    }
  }

  bool broken() const { return broken_; }

 private:
  static constexpr float forbidden = -std::numeric_limits<float>::infinity();

  void apply() {
    llama_token_data_array list{scratch_.data(), scratch_.size(), -1, false};
    llama_sampler_apply(grammar_.get(), &list);
  }

  std::shared_ptr<const vocabulary> words_;
  sampler_ptr grammar_;
  std::vector<llama_token_data> scratch_;
  std::vector<std::size_t> places_;  ///< of what is in `scratch_` among the candidates
  std::vector<bool> begins_;         ///< by leading token: whether an answer may go on with it
  bool broken_ = false;
};

sampler_ptr make_sampler(const vocabulary& words, const engine::output_plan& plan) {
  if (!plan.grammar_lazy)
    return sampler_ptr(llama_sampler_init_grammar(words.raw(), plan.grammar.c_str(), root_rule));
  const auto triggers = grammar_triggers_from_json(plan.grammar_triggers_json);
  std::vector<const char*> patterns;
  for (const auto& p : triggers.patterns) patterns.push_back(p.c_str());
  return sampler_ptr(llama_sampler_init_grammar_lazy_patterns(
      words.raw(), plan.grammar.c_str(), root_rule, patterns.data(), patterns.size(),
      triggers.tokens.data(), triggers.tokens.size()));
}

/// A grammar of a chat answer describes what the template has written of it already, too.
void accept_generation_prompt(const vocabulary& words, const std::string& prompt,
                              text::constraint& into) {
  const auto tokens = words.tokenize(prompt, false, true);
  if (!tokens) return;
  for (std::size_t i = 0; i < tokens->size(); ++i) {
    const auto piece = words.piece((*tokens)[i], true);
    const auto blank = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
    // Some tokenisers put a space before the first special token.
    if (i == 0 && !piece.empty() && blank(piece[0]) && !blank(prompt[0])) continue;
    into.accept((*tokens)[i]);
  }
}

bool can_start(const vocabulary& words, text::constraint& grammar) {
  for (const auto t : words.character_tokens())
    if (grammar.allows(t)) return true;
  for (const auto t : words.end_tokens())
    if (grammar.allows(t)) return true;
  for (token_id t = 0; words.contains(t); ++t)
    if (grammar.allows(t)) return true;
  return false;
}

}  // namespace

void mend_names(std::string& grammar) {
  constexpr std::string_view rule = "additional-k";
  constexpr std::string_view open = "[^\"";
  constexpr std::string_view mended = R"([^"\\\x7F\x00-\x1F)";
  std::string out;
  out.reserve(grammar.size());
  for (std::string_view left(grammar); !left.empty();) {
    auto line = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(left.size(), line.size() + 1));
    const auto name = line.substr(0, line.find(" ::= "));
    const bool names = name.substr(0, name.find_last_not_of("0123456789") + 1).ends_with(rule);
    for (auto at = line.find(open); names && at != std::string_view::npos; at = line.find(open)) {
      out.append(line.substr(0, at)).append(mended);
      line.remove_prefix(at + open.size());
    }
    out.append(line).append("\n");
  }
  grammar = std::move(out);
}

expected<held_schema> hold_schema(const std::string& schema, unheld_keywords unheld) {
  if (schema.size() > schema_bytes_max)
    return invalid_schema(
        fmt::format("the schema has {} bytes; {} are supported", schema.size(), schema_bytes_max));
  try {
    auto parsed = common_json::parse(schema);
    if (!parsed.is_object()) return invalid_schema("the schema is not a JSON object");
    if (auto sane = check_schema(parsed, unheld); !sane) return sane.error();
    auto grammar = json_schema_to_grammar(parsed, true);
    if (grammar.empty()) return invalid_schema("the schema gives no grammar");
    mend_names(grammar);
    return held_schema{parsed.dump(), std::move(grammar)};
  } catch (const std::exception& e) {
    return invalid_schema(e.what());
  }
}

expected<std::unique_ptr<text::constraint>> make_constraint(std::shared_ptr<const vocabulary> words,
                                                            const engine::output_plan& plan) {
  try {
    take_last_error();
    auto sampler = make_sampler(*words, plan);
    if (!sampler) return invalid_schema("its grammar is malformed (" + take_last_error() + ")");
    auto out = std::make_unique<grammar_constraint>(words, std::move(sampler));
    if (!plan.grammar_lazy) {
      if (!plan.generation_prompt.empty())
        accept_generation_prompt(*words, plan.generation_prompt, *out);
      if (out->broken() || !can_start(*words, *out))
        return invalid_schema("no token of the model's vocabulary can begin an answer");
    }
    return std::unique_ptr<text::constraint>(std::move(out));
  } catch (const std::exception& e) {
    return invalid_schema(e.what());
  }
}

}  // namespace troupe::gguf
