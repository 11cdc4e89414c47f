#pragma once

#include "actors/gateway/openai/api_error.hpp"
#include "actors/request/submission.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::gateway::openai {

/// What all chunks of an answer have in common.
struct answer_identity {
  std::string id;  ///< `chatcmpl-…` or `cmpl-…`
  std::string model;
  std::string fingerprint;   ///< `system_fingerprint`
  std::int64_t created = 0;  ///< seconds since 1970
  bool chat = true;
};

/// `{"error":{...}}`.
std::string encode_error(const api_error& e);

struct listed_model {
  std::string name;
};
std::string encode_models(const std::vector<listed_model>& models, std::int64_t created);
std::string encode_model(const listed_model& model, std::int64_t created);

/// The `usage` object.
void append_usage(std::string& to, const request::totals& sum);

}  // namespace troupe::gateway::openai
