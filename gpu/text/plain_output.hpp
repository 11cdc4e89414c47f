#pragma once

#include "gpu/text/text_model.hpp"

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe::text {

/// An output stream without tool calls: bytes of tokens → whole characters → stop strings. `piece`
/// gives a token's bytes and must live as long as the stream.
std::unique_ptr<output_stream> make_plain_output(std::function<std::string(token_id)> piece,
                                                 std::span<const std::string> plan_stops,
                                                 std::span<const std::string> client_stops);

}  // namespace troupe::text
