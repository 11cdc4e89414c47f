#pragma once

#include "gpu/text/gguf/gguf_file.hpp"
#include "gpu/text/gguf/special_tokens.hpp"
#include "gpu/text/text_model.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct llama_vocab;

namespace troupe::gguf {

using engine::token_id;

/// A model's tokens. Constant after it was made; any thread.
class vocabulary {
 public:
  explicit vocabulary(std::shared_ptr<const llama_model> model);

  /// Asked now and then with the tokens so far; false leaves the rest of the text out.
  using keep_going = std::function<bool(std::span<const token_id>)>;

  /// Errors: `prompt_too_long` beyond what an `int` can count, or with too many special tokens that
  /// run into each other.
  expected<std::vector<token_id>> tokenize(std::string_view text, bool add_special,
                                           bool parse_special, const keep_going& more = {}) const;
  /// The bytes that a token adds to running text; `special`: those of control tokens, too, which
  /// otherwise add none.
  std::string piece(token_id token, bool special = false) const;
  /// So many tokens a text has at least, told without tokenising it; 0: nobody knows.
  std::size_t tokens_min(std::string_view text) const;
  /// A text without the further beginning tokens behind the one in front.
  std::string_view with_one_bos(std::string_view text) const;
  bool is_end(token_id token) const;
  std::uint32_t size() const { return size_; }
  bool contains(token_id token) const {
    return token >= 0 && static_cast<std::uint32_t>(token) < size_;
  }
  /// The token that begins every prompt, where the model wants one.
  std::optional<token_id> bos() const { return bos_; }
  /// The token whose whole text this is.
  std::optional<token_id> single_token(std::string_view text) const;
  const std::vector<token_id>& end_tokens() const { return end_tokens_; }
  /// Tokens of a single ASCII character: what a grammar can be tried with cheaply.
  const std::vector<token_id>& character_tokens() const { return character_tokens_; }

  /// The token of this token's first character alone, where there is one; else itself. A grammar
  /// that refuses the first refuses the second.
  token_id lead(token_id token) const { return leads_[static_cast<std::size_t>(token)]; }
  /// All tokens that lead others, each once.
  const std::vector<token_id>& leaders() const { return leaders_; }

  const llama_vocab* raw() const { return vocab_; }

 private:
  std::shared_ptr<const llama_model> model_;  ///< owns `vocab_`
  const llama_vocab* vocab_;
  std::uint32_t size_;
  std::optional<token_id> bos_;
  std::vector<token_id> end_tokens_;
  std::vector<token_id> character_tokens_;
  std::vector<token_id> leads_;  ///< by token
  std::vector<token_id> leaders_;
  std::string bos_text_;
  std::size_t longest_bytes_ = 0;           ///< of a token; 0: tokens may stand for more
  std::optional<special_tokens> specials_;  ///< where a text can be tokenised in parts

  void find_leads();
  expected<std::vector<token_id>> tokenize_at_once(std::string_view text, bool add_special,
                                                   bool parse_special) const;
  expected<std::vector<token_id>> tokenize_in_parts(std::string_view text, bool add_special,
                                                    const keep_going& more) const;
};

}  // namespace troupe::gguf
