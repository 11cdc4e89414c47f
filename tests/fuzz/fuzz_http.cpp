// What a client may send over a connection: each input goes to a gateway through a socket, then the
// sending side is shut down. The gateway must answer in HTTP or not at all, with bodies of JSON or
// events of JSON, close, and stay alive for the next one.

#include "actors/gateway/gateway.hpp"
#include "tests/support/http_client.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <capnp/message.h>
#include <simdjson.h>
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
    const auto prompts = static_cast<std::uint16_t>(s.prompts.size());
    for (std::uint16_t p = 0; p < prompts; ++p) {
      s.client->on_accepted(p, 1, 0, {});
      for (std::uint16_t choice = 0; choice < s.choices; ++choice) {
        capnp::MallocMessageBuilder words;
        auto d = words.initRoot<msg::StreamDelta>();
        d.setChoice(choice);
        d.setText("\u00e9\"\n");
        d.setFinish(msg::FinishReason::STOP);
        s.client->on_delta(p, d.asReader());
      }
    }
    s.client->on_finished({.prompt_tokens = 1, .cached_tokens = 0, .completion_tokens = 0});
    return ok;
  }
  void cancel(request::request_id, std::string) override {}
  std::string timeline_json(const std::string&, const std::optional<std::string>&) override {
    return {};
  }
  std::vector<model_state> models() override { return {{"m", true, {}, false}}; }
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

void check_json(std::string_view text, const std::string& answer) {
  static simdjson::dom::parser parser;
  // It also refuses what is no UTF-8.
  if (parser.parse(simdjson::padded_string{text}).error() != simdjson::SUCCESS)
    fault("a body is not JSON", answer);
}

void check_events(std::string_view body, const std::string& answer) {
  constexpr std::string_view data = "data: ";
  while (!body.empty()) {
    const auto end = body.find("\n\n");
    if (!body.starts_with(data) || end == body.npos)
      fault("a stream is no stream of events", answer);
    const auto event = body.substr(data.size(), end - data.size());
    if (event != "[DONE]") check_json(event, answer);
    body.remove_prefix(end + 2);
  }
}

/// One answer after the other, each of them whole.
void check_answers(const std::string& answer) {
  namespace http = boost::beast::http;
  std::string_view rest = answer;
  while (!rest.empty()) {
    http::response_parser<http::string_body> parser;
    parser.eager(true);
    boost::system::error_code ec;
    while (!parser.is_done() && !rest.empty() && !ec) {
      const auto used = parser.put(boost::asio::buffer(rest.data(), rest.size()), ec);
      rest.remove_prefix(used);
      if (used == 0 && !ec) break;
    }
    if (ec == http::error::need_more) ec = {};
    if (!ec && !parser.is_done()) parser.put_eof(ec);
    if (ec) fault("this is not HTTP", answer);
    const auto& body = parser.get().body();
    const auto type = parser.get()[http::field::content_type];
    if (type.starts_with("application/json")) check_json(body, answer);
    if (type.starts_with("text/event-stream")) check_events(body, answer);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  test::raw_client client{server().local_port()};
  client.send({reinterpret_cast<const char*>(data), size});
  client.half_close();
  const auto answer = client.read_all();
  if (!client.closed()) fault("the connection stays open", answer);
  if (!answer.empty() && !answer.starts_with("HTTP/1.")) fault("this is not HTTP", answer);
  // Answers to HEAD announce bodies that do not come.
  const std::string_view input{reinterpret_cast<const char*>(data), size};
  if (input.find("HEAD ") == input.npos) check_answers(answer);
  return 0;
}
