#pragma once

#include "gpu/text/gguf/schema_check.hpp"
#include "gpu/text/gguf/vocabulary.hpp"
#include "gpu/text/text_model.hpp"

#include <memory>
#include <string>

namespace troupe::gguf {

/// GBNF of a JSON schema (JSON text). Errors: `invalid_schema` with the request's parameter: not
/// JSON, not a schema, a keyword that has no grammar, or one that nothing can satisfy.
expected<std::string> grammar_of_schema(const std::string& schema,
                                        unheld_keywords unheld = unheld_keywords::refuse);

/// The constraint of a plan that has a grammar. Errors: `invalid_schema`: it is malformed, or no
/// token can begin it.
expected<std::unique_ptr<text::constraint>> make_constraint(std::shared_ptr<const vocabulary> words,
                                                            const engine::output_plan& plan);

}  // namespace troupe::gguf
