#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace troupe::engine {

using token_id = std::int32_t;
/// A position in a sequence; also a count of tokens.
using position = std::uint32_t;
/// Names a job inside one worker; never reused in a process.
using job_id = std::uint64_t;

/// What a loaded model is and can do. Constant after load.
struct model_info {
  std::string name;
  position context_tokens = 0;  ///< longest sequence
  std::uint32_t vocabulary = 0;
  std::uint32_t kv_bytes_per_token = 0;  ///< of an exported range, without its header
  std::uint64_t kv_layout = 0;  ///< digest of what makes KV exchangeable: model file, types, layers
  bool ranges = true;           ///< KV of a range of positions can be copied, exported, removed
  std::string no_ranges_reason;  ///< why not, for the error that restricts the model to role `both`
  bool add_bos = true;
  std::vector<token_id> end_tokens;  ///< end of generation
  std::string device_class;          ///< what computes it: the same class takes the same time
};

/// How to choose a token. The draw for token i of choice c depends on (seed, c, i) only: a
/// counter-based generator, so a failover repeats it.
struct sampling {
  float temperature = 1.0F;  ///< 0: greedy
  float top_p = 1.0F;
  std::int32_t top_k = 0;  ///< 0: off
  float min_p = 0.0F;
  std::uint64_t seed = 0;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  std::vector<std::pair<token_id, float>> logit_bias;
};

/// How to constrain and read the answer; made by rendering (see text/), mirrors msg::OutputPlan.
struct output_plan {
  std::string grammar;  ///< GBNF; empty: none
  bool grammar_lazy = false;
  std::string grammar_triggers_json;
  std::vector<token_id> preserved_tokens;
  std::string parser_json;  ///< for the tool-call parser; empty: plain text
  std::vector<std::string> stops;
  std::string generation_prompt;
};

struct candidate {
  token_id id = 0;
  std::string bytes;
  float logprob = 0;
};

struct token_logprob {
  candidate chosen;
  std::vector<candidate> top;
};

struct tool_call_delta {
  std::uint32_t index = 0;
  std::string id;
  std::string name;
  std::string arguments;
};

enum class finish : std::uint8_t { none, stop, length, tool_calls };

/// What an earlier attempt already gave the client for one choice.
struct resumed_choice {
  std::vector<token_id> ids;
  std::uint32_t emitted_bytes = 0;
  bool done = false;
};

}  // namespace troupe::engine
