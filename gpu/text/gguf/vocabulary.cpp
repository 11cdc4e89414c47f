#include "gpu/text/gguf/vocabulary.hpp"

#include <fmt/format.h>
#include <llama.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <string>
#include <unordered_map>
#include <utility>

namespace troupe::gguf {
namespace {

/// Nearly all tokens are shorter; the others take a second call.
constexpr std::size_t usual_piece_bytes = 64;
constexpr std::size_t text_bytes_max = std::numeric_limits<std::int32_t>::max() / 2;

/// Of tokenisers whose tokens depend on nothing beyond the text between two special tokens.
std::optional<std::vector<special_tokens::special>> specials_of(const llama_vocab* vocab,
                                                                std::uint32_t size) {
  const auto type = llama_vocab_type(vocab);
  if (type != LLAMA_VOCAB_TYPE_SPM && type != LLAMA_VOCAB_TYPE_BPE) return std::nullopt;
  constexpr auto kinds = LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_USER_DEFINED |
                         LLAMA_TOKEN_ATTR_UNKNOWN;
  std::vector<special_tokens::special> out;
  for (token_id t = 0; t < static_cast<token_id>(size); ++t) {
    const auto attributes = static_cast<unsigned>(llama_vocab_get_attr(vocab, t));
    if ((attributes & kinds) != 0)
      out.push_back({llama_vocab_get_text(vocab, t), (attributes & LLAMA_TOKEN_ATTR_LSTRIP) != 0});
  }
  return out;
}

/// Of UTF-8; 0 where the text begins with no whole character.
std::size_t first_character_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = static_cast<unsigned char>(text[0]);
  const std::size_t length = byte < 0x80   ? 1
                             : byte < 0xC0 ? 0
                             : byte < 0xE0 ? 2
                             : byte < 0xF0 ? 3
                                           : 4;
  return byte == 0 || length > text.size() ? 0 : length;
}

/// 0 where a token may take whitespace of any length along.
std::size_t longest_token_bytes(const llama_vocab* vocab, std::uint32_t size) {
  constexpr auto takes_along = LLAMA_TOKEN_ATTR_LSTRIP | LLAMA_TOKEN_ATTR_RSTRIP;
  std::size_t longest = sizeof(char32_t);  // an unknown character
  for (token_id t = 0; t < static_cast<token_id>(size); ++t) {
    if ((static_cast<unsigned>(llama_vocab_get_attr(vocab, t)) & takes_along) != 0) return 0;
    longest = std::max(longest, std::string_view(llama_vocab_get_text(vocab, t)).size());
  }
  return longest;
}

}  // namespace

vocabulary::vocabulary(std::shared_ptr<const llama_model> model)
    : model_(std::move(model)), vocab_(llama_model_get_vocab(model_.get())),
      size_(static_cast<std::uint32_t>(llama_vocab_n_tokens(vocab_))) {
  if (llama_vocab_get_add_bos(vocab_) && llama_vocab_bos(vocab_) != LLAMA_TOKEN_NULL)
    bos_ = llama_vocab_bos(vocab_);
  if (bos_) bos_text_ = llama_vocab_get_text(vocab_, *bos_);
  if (auto specials = specials_of(vocab_, size_); specials) specials_.emplace(*std::move(specials));
  if (specials_) longest_bytes_ = longest_token_bytes(vocab_, size_);
  for (token_id t = 0; contains(t); ++t) {
    if (llama_vocab_is_eog(vocab_, t))
      end_tokens_.push_back(t);
    else if (const auto text = piece(t); text.size() == 1 && text[0] > 0)
      character_tokens_.push_back(t);
  }
  find_leads();
}

/// Not of control tokens and the like, which a grammar may tell apart by what they are.
void vocabulary::find_leads() {
  leads_.resize(size_);
  std::iota(leads_.begin(), leads_.end(), 0);
  std::vector<std::string> firsts(size_);  // characters; empty: has none of its own
  std::unordered_map<std::string_view, token_id> alone;
  for (token_id t = 0; contains(t); ++t) {
    if (llama_vocab_get_attr(vocab_, t) != LLAMA_TOKEN_ATTR_NORMAL) continue;
    const auto text = piece(t);
    auto& first = firsts[static_cast<std::size_t>(t)];
    first = text.substr(0, first_character_bytes(text));
    if (!first.empty() && first.size() == text.size()) alone.emplace(first, t);
  }
  for (token_id t = 0; contains(t); ++t)
    if (const auto i = alone.find(firsts[static_cast<std::size_t>(t)]); i != alone.end())
      leads_[static_cast<std::size_t>(t)] = i->second;
  for (const auto& [text, t] : alone) leaders_.push_back(t);
}

expected<std::vector<token_id>> vocabulary::tokenize(std::string_view text, bool add_special,
                                                     bool parse_special,
                                                     const keep_going& more) const {
  if (text.size() > text_bytes_max) {
    return error{"prompt_too_long",
                 fmt::format("a text of {} bytes is too long to tokenise", text.size())};
  }
  if (parse_special && specials_ && text.size() > specials_per_part)
    return tokenize_in_parts(text, add_special, more);
  return tokenize_at_once(text, add_special, parse_special);
}

/// What llama.cpp does in one call takes time with the square of the special tokens' number.
expected<std::vector<token_id>> vocabulary::tokenize_in_parts(std::string_view text,
                                                              bool add_special,
                                                              const keep_going& more) const {
  std::vector<token_id> out;
  if (add_special && bos_) out.push_back(*bos_);
  for (std::size_t from = 0; from < text.size();) {
    if (from > 0 && more && !more(out)) return out;
    const auto end = specials_->part_end(text, from);
    if (!end)
      return error{"prompt_too_long",
                   fmt::format("the text has more than {} special tokens that run into each other",
                               specials_per_part_max)};
    auto part = tokenize_at_once(text.substr(from, *end - from), false, true);
    if (!part) return part;
    out.insert(out.end(), part->begin(), part->end());
    from = *end;
  }
  if (add_special && llama_vocab_get_add_eos(vocab_)) out.push_back(llama_vocab_eos(vocab_));
  return out;
}

expected<std::vector<token_id>> vocabulary::tokenize_at_once(std::string_view text,
                                                             bool add_special,
                                                             bool parse_special) const {
  const auto bytes = static_cast<std::int32_t>(text.size());
  // Hardly ever are there more tokens than bytes; a second call would do all of the work again.
  std::vector<token_id> out(text.size() + 16);
  auto count = llama_tokenize(vocab_, text.data(), bytes, out.data(),
                              static_cast<std::int32_t>(out.size()), add_special, parse_special);
  if (count == std::numeric_limits<std::int32_t>::min())
    return error{"prompt_too_long", "the text has too many tokens"};
  if (count < 0) {
    out.resize(static_cast<std::size_t>(-count));
    count = llama_tokenize(vocab_, text.data(), bytes, out.data(),
                           static_cast<std::int32_t>(out.size()), add_special, parse_special);
  }
  out.resize(static_cast<std::size_t>(std::max(count, 0)));
  return out;
}

std::string vocabulary::piece(token_id token, bool special) const {
  if (!contains(token)) return {};
  std::array<char, usual_piece_bytes> buffer;
  const auto size = llama_token_to_piece(vocab_, token, buffer.data(),
                                         static_cast<std::int32_t>(buffer.size()), 0, special);
  if (size >= 0) return {buffer.data(), static_cast<std::size_t>(size)};
  std::string out(static_cast<std::size_t>(-size), '\0');
  const auto again = llama_token_to_piece(vocab_, token, out.data(), -size, 0, special);
  out.resize(static_cast<std::size_t>(std::max(again, 0)));
  return out;
}

std::size_t vocabulary::tokens_min(std::string_view text) const {
  return longest_bytes_ == 0 ? 0 : text.size() / longest_bytes_;
}

std::string_view vocabulary::with_one_bos(std::string_view text) const {
  const auto size = bos_text_.size();
  while (size > 0 && text.starts_with(bos_text_) && text.substr(size).starts_with(bos_text_))
    text.remove_prefix(size);
  return text;
}

bool vocabulary::is_end(token_id token) const {
  return contains(token) && llama_vocab_is_eog(vocab_, token);
}

std::optional<token_id> vocabulary::single_token(std::string_view text) const {
  const auto tokens = tokenize(text, false, true);
  if (!tokens || tokens->size() != 1) return std::nullopt;
  return tokens->front();
}

}  // namespace troupe::gguf
