#pragma once

#include <capnp/blob.h>

#include <string>

namespace troupe::msg {

/// For setters of texts that clients or models made: given a string itself, they would end it at
/// the first U+0000.
inline capnp::Text::Reader whole(const std::string& text) { return {text.c_str(), text.size()}; }

}  // namespace troupe::msg
