// Bodies of both completion endpoints (the first byte chooses): a request whose prompts can be
// read, or an error that can be sent; never an exception or a crash.

#include "actors/gateway/openai/encode.hpp"
#include "actors/gateway/openai/request.hpp"

#include <capnp/serialize.h>
#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

using namespace troupe::gateway::openai;

[[noreturn]] void fault(const char* what) {
  std::fprintf(stderr, "fuzz_openai: %s\n", what);
  std::abort();
}

void check_error(const api_error& e) {
  if (e.code.empty() || e.message.empty()) fault("an error without a code or a message");
  if (e.status < 400 || e.status > 499) fault("a body is the client's fault");
  simdjson::dom::parser parser;
  if (parser.parse(encode_error(e)).error()) fault("an error that is not JSON");
}

void check_request(const parsed_request& r) {
  if (r.model.empty() || r.prompts.empty() || r.choices == 0) fault("a request without substance");
  for (const auto& prompt : r.prompts) {
    capnp::FlatArrayMessageReader reader{prompt->words};
    const auto c = reader.getRoot<troupe::msg::Completion>();
    if (c.getModel().size() != r.model.size()) fault("a completion of another model");
    if (c.getPrompt().isNone()) fault("a completion without a prompt");
    if (c.getIsChat() != c.getPrompt().isMessages()) fault("a chat is messages");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  parse_options options;
  options.prompt_bytes_max = 16 * 1024;
  options.random = [] { return std::uint64_t{1}; };
  const std::string_view body{reinterpret_cast<const char*>(data) + 1, size - 1};
  const auto result = data[0] % 2 == 0 ? parse_chat(body, options)
                                       : parse_completion(body, options);
  if (const auto* e = std::get_if<api_error>(&result))
    check_error(*e);
  else
    check_request(std::get<parsed_request>(result));
  return 0;
}
