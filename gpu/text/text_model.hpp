#pragma once

#include "gpu/engine/types.hpp"
#include "messages/base/expected.hpp"
#include "messages/completion.capnp.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::text {

using engine::token_id;

/// A prompt in the model's terms.
struct rendered_prompt {
  std::vector<token_id> tokens;
  engine::output_plan plan;
  std::string echo_text;  ///< the prompt's text, for completions with `echo`
};

/// Limits which tokens may come next (a grammar). One per choice; not thread-safe.
class constraint {
 public:
  virtual ~constraint() = default;
  /// Whether this one token may come next. Cheap; lets a sampler try its favourite before it asks
  /// for all.
  virtual bool allows(token_id token) = 0;
  /// Sets the logits of tokens that may not come next to -infinity.
  virtual void mask(std::span<std::pair<token_id, float>> candidates) = 0;
  /// The token was chosen (or replayed, after a failover).
  virtual void accept(token_id token) = 0;
};

/// What one token adds to the client's text.
struct text_delta {
  std::string text;
  std::string reasoning;
  std::vector<engine::tool_call_delta> tool_calls;
  bool stopped = false;  ///< a stop string is complete: generation ends, the stop string is not
                         ///< part of the text
  std::string stop_text;
  bool has_tool_calls = false;  ///< so far, over the whole answer: decides the finish reason
};

/// Turns one choice's tokens into text: never splits a UTF-8 character, holds back what may become
/// a stop string, parses tool calls. Not thread-safe.
class output_stream {
 public:
  virtual ~output_stream() = default;
  virtual text_delta push(token_id token) = 0;
  /// The end: what was held back comes out (incomplete UTF-8 as U+FFFD).
  virtual text_delta finish() = 0;
  /// Bytes of text given out so far. Deltas of replayed tokens are cut by whoever replays.
  virtual std::uint32_t emitted_bytes() const = 0;
};

/// Whether anybody still waits for a prompt that is being rendered.
using still_wanted = std::function<bool()>;

/// A model's text side: template, tokeniser, grammar, parser. Loaded once; const calls are
/// thread-safe.
class text_model {
 public:
  virtual ~text_model() = default;

  /// Renders and tokenises. Errors carry `code`, `message` and `parameter` for the client
  /// (`context_length_exceeded`, `invalid_schema`, `template_failed`, ...). `wanted` is asked
  /// before each step that can take long, so that it tells of progress, too; when it says no, what
  /// is left to do is not begun, and the error is `cancelled`.
  virtual expected<rendered_prompt> render(msg::Completion::Reader request,
                                           const still_wanted& wanted) const = 0;
  /// One that is wanted to its end.
  expected<rendered_prompt> render(msg::Completion::Reader request) const {
    return render(request, [] { return true; });
  }
  virtual expected<std::vector<token_id>> tokenize(std::string_view text, bool add_special,
                                                   bool parse_special) const = 0;
  /// Bytes of one token as it stands in running text.
  virtual std::string piece(token_id token) const = 0;
  virtual bool is_end(token_id token) const = 0;
  virtual std::uint32_t vocabulary() const = 0;

  /// Null when the plan has no grammar. Errors: `invalid_schema` (a grammar that the model's
  /// vocabulary cannot start).
  virtual expected<std::unique_ptr<constraint>> make_constraint(
      const engine::output_plan& plan) const = 0;
  virtual std::unique_ptr<output_stream> make_output(const engine::output_plan& plan,
                                                     std::span<const std::string> stops) const = 0;
};

/// A byte-level model without weights: 256 byte tokens and a few control tokens, a ChatML-like
/// template, no grammars. For simulated engines whose model names no file.
std::shared_ptr<const text_model> make_byte_text_model(engine::position context_tokens);

/// The text side of a GGUF file (vocabulary only; loads in milliseconds), by llama.cpp and its
/// `common`. `chat_template`: empty for the model's own, else a built-in name or Jinja source.
/// Errors: `model_missing`, `model_corrupt`, `template_unknown`.
expected<std::shared_ptr<const text_model>> load_gguf_text_model(const std::string& path,
                                                                 const std::string& chat_template,
                                                                 engine::position context_tokens);

}  // namespace troupe::text
