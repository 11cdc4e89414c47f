#pragma once

#include "gpu/engine/types.hpp"

namespace troupe::text {

/// Token ids of the byte model beyond the 256 bytes.
inline constexpr engine::token_id byte_token_begin = 256;       ///< beginning of a prompt; no text
inline constexpr engine::token_id byte_token_turn_start = 257;  ///< `<|im_start|>`
inline constexpr engine::token_id byte_token_turn_end = 258;    ///< `<|im_end|>`; ends generation
inline constexpr engine::token_id byte_token_end = 259;         ///< end of text; ends generation
inline constexpr std::uint32_t byte_vocabulary = 260;

}  // namespace troupe::text
