#pragma once

#include "gpu/text/gguf/schema_check.hpp"
#include "gpu/text/gguf/vocabulary.hpp"
#include "gpu/text/text_model.hpp"

#include <memory>
#include <string>

namespace troupe::gguf {

struct held_schema {
  std::string text;     ///< JSON, as llama.cpp's conversion takes it exactly
  std::string grammar;  ///< GBNF of it
};

/// What an answer to a JSON schema (JSON text) is held by. Errors: `invalid_schema` with the
/// request's parameter: not JSON, not a schema, a keyword that has no grammar, or one that nothing
/// can satisfy.
expected<held_schema> hold_schema(const std::string& schema,
                                  unheld_keywords unheld = unheld_keywords::refuse);

/// In llama.cpp's grammars a property that must not be one of some names may begin like none of
/// them with any byte but a quote: the backslash that makes the text no JSON, or writes one of
/// those names otherwise. Here such a name differs by a character that stands for itself.
void mend_names(std::string& grammar);

/// The constraint of a plan that has a grammar. Errors: `invalid_schema`: it is malformed, or no
/// token can begin it.
expected<std::unique_ptr<text::constraint>> make_constraint(std::shared_ptr<const vocabulary> words,
                                                            const engine::output_plan& plan);

}  // namespace troupe::gguf
