#include "actors/request/fingerprint.hpp"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <xxhash.h>

namespace troupe::request {

std::uint64_t fingerprint(const prompt_content& content) {
  capnp::ReaderOptions trusted;  // our own gateway built it under its own limits
  trusted.traversalLimitInWords = ~std::uint64_t{0};
  capnp::FlatArrayMessageReader reader{content.words, trusted};
  capnp::MallocMessageBuilder copy;
  copy.setRoot(reader.getRoot<msg::Completion>());
  copy.getRoot<msg::Completion>().getSampling().setSeed(0);
  const auto words = capnp::messageToFlatArray(copy);
  return XXH3_64bits(words.asBytes().begin(), words.asBytes().size());
}

}  // namespace troupe::request
