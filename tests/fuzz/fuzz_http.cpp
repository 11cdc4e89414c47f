// What a client may send over a connection: each input goes to a gateway through a socket, then the
// sending side is shut down. The gateway must answer in HTTP or not at all, close, and stay alive
// for the next one.

#include "actors/gateway/gateway.hpp"
#include "tests/support/http_client.hpp"

#include <spdlog/spdlog.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

namespace {

using namespace troupe;

/// Answers what gets through at once, from the submitting thread.
class quick_desk final : public request::desk {
 public:
  expected<void> submit(request::submission s) override {
    for (std::uint16_t p = 0; p < s.prompts.size(); ++p) s.client->on_accepted(p, 1, 0, {});
    s.client->on_finished({.prompt_tokens = 1, .cached_tokens = 0, .completion_tokens = 0});
    return ok;
  }
  void cancel(request::request_id, std::string) override {}
  std::string timeline_json(const std::string&) override { return {}; }
  std::vector<model_state> models() override { return {{"m", true, {}}}; }
};

gateway::http_gateway& server() {
  static auto g = [] {
    spdlog::set_level(spdlog::level::warn);
    gateway::gateway_options options;
    options.limits.prompt_bytes_max = 16 * 1024;
    auto made = std::make_unique<gateway::http_gateway>(options, std::make_shared<quick_desk>());
    if (!made->start()) std::abort();
    return made;
  }();
  return *g;
}

[[noreturn]] void fault(const char* what, const std::string& answer) {
  std::fprintf(stderr, "fuzz_http: %s: %.200s\n", what, answer.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  test::raw_client client{server().local_port()};
  client.send({reinterpret_cast<const char*>(data), size});
  client.half_close();
  const auto answer = client.read_all();
  if (!client.closed()) fault("the connection stays open", answer);
  if (!answer.empty() && !answer.starts_with("HTTP/1.")) fault("this is not HTTP", answer);
  return 0;
}
