#pragma once

#include "messages/job.capnp.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::gateway::openai {

using logprob_list = capnp::List<msg::TokenLogprob>::Reader;

/// Appends a chat's `logprobs.content` entries, comma-separated, without brackets; a comma first
/// where `to` has entries already.
void append_chat_logprobs(std::string& to, logprob_list tokens);

/// The four parallel lists of a text completion's `logprobs`, as they grow.
class completion_logprobs {
 public:
  void add(logprob_list tokens);
  /// Appends the object, and forgets the entries but not the offset.
  void flush(std::string& to);
  /// Bytes held.
  std::size_t bytes() const {
    return tokens_.size() + values_.size() + tops_.size() + offsets_.size();
  }

 private:
  std::string tokens_;
  std::string values_;
  std::string tops_;
  std::string offsets_;
  std::uint64_t offset_ = 0;
};

/// Characters (code points) of valid UTF-8.
std::uint64_t characters_of(std::string_view text);

}  // namespace troupe::gateway::openai
