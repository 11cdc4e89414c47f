// Whatever a peer puts on the wire in place of a message: refused or read without harm, and never
// more memory than the cap.

#include "messages/envelope.hpp"
#include "messages/job.capnp.h"

#include <kj/exception.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

namespace {

std::size_t walk(troupe::msg::TokenBatch::Reader batch) {
  std::size_t sum = batch.getWorker().size();
  for (auto stream : batch.getStreams()) {
    sum += stream.getText().size() + stream.getIds().size() + stream.getKey().getAttempt();
    for (auto call : stream.getToolCalls()) sum += call.getArguments().size();
    for (auto entry : stream.getLogprobs())
      for (auto candidate : entry.getTop()) sum += candidate.getBytes().size();
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  auto message = msg::frozen_message::from_bytes(std::as_bytes(std::span{data, size}));
  if (!message) return 0;
  if (message->byte_size() > msg::message_bytes_max || message->byte_size() > size) std::abort();
  try {
    msg::view<msg::TokenBatch> view{*message};
    volatile auto sum = walk(*view);
    static_cast<void>(sum);
  } catch (const kj::Exception&) {
    // The door's business: links catch it and drop the message.
  }
  return 0;
}
