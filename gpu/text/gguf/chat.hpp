#pragma once

#include "gpu/text/gguf/vocabulary.hpp"
#include "gpu/text/text_model.hpp"
#include "messages/base/expected.hpp"
#include "messages/completion.capnp.h"

#include <memory>
#include <string>

struct common_chat_templates;
struct llama_model;

namespace troupe::gguf {

struct rendered_chat {
  std::string prompt;
  engine::output_plan plan;  ///< without what depends on the prompt's tokens
  bool parses = false;       ///< the answer goes through the template's parser
};

/// A model's chat template. Constant after it was made; any thread.
///
/// A template that cannot describe tools gets them by a system message and Hermes' format
/// (`<tool_call>` around JSON), so that `tools` is never ignored.
class chat {
 public:
  /// `which`: empty for the model's own, else a name that llama.cpp knows or Jinja source. Errors:
  /// `template_unknown`.
  static expected<std::unique_ptr<chat>> make(const llama_model* model, const std::string& which,
                                              std::shared_ptr<const vocabulary> words);
  ~chat();

  /// Errors carry the parameter: those of `chat_inputs` and `hold_schema`;
  /// `no_chat_template`, `template_failed` (what the template itself says),
  /// `unsupported_parameter`.
  expected<rendered_chat> render(msg::Completion::Reader request) const;

 private:
  struct deleter {
    void operator()(common_chat_templates* templates) const;
  };
  using templates_ptr = std::unique_ptr<common_chat_templates, deleter>;
  struct request_inputs;

  chat() = default;
  bool answers_plainly() const;
  expected<rendered_chat> apply(const request_inputs& in) const;

  templates_ptr templates_;    ///< null: the model has none
  templates_ptr tool_format_;  ///< for templates without tools
  bool jinja_ = true;
  bool describes_tools_ = false;
  bool plain_answers_ = false;
  std::shared_ptr<const vocabulary> words_;
};

}  // namespace troupe::gguf
