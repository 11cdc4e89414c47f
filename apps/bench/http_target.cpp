#include "apps/bench/http_target.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <thread>

namespace troupe::bench {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using std::chrono::milliseconds;

constexpr milliseconds poll_interval{100};
constexpr milliseconds poll_timeout{2'000};
constexpr milliseconds models_timeout{5'000};

/// One GET, step by step; each step begins the next.
struct fetch {
  asio::io_context io{1};
  beast::tcp_stream stream{io};
  std::optional<asio::ssl::stream<beast::tcp_stream&>> tls;
  beast::flat_buffer buffer;
  http::request<http::empty_body> request;
  http::response<http::string_body> response;
  beast::error_code failure;
  const char* step = "connect";

  template <class Next>
  auto then(const char* next_step, Next next) {
    return [this, next_step, next](beast::error_code ec, auto&&...) {
      failure = ec;
      if (ec) return;
      step = next_step;
      next();
    };
  }

  template <class Stream>
  void ask(Stream& to) {
    http::async_write(to, request, then("receive", [this, &to] {
                        http::async_read(to, buffer, response, then("done", [] {}));
                      }));
  }

  void greet(const http_target& target) {
    tls.emplace(stream, *target.tls);
    expect_host(tls->native_handle(), target.host);
    step = "greet";
    tls->async_handshake(asio::ssl::stream_base::client, then("send", [this] { ask(*tls); }));
  }

  void run(const http_target& target, const asio::ip::tcp::resolver::results_type& addresses,
           milliseconds timeout) {
    stream.expires_after(timeout);
    stream.async_connect(addresses, then("send", [this, &target] {
                           if (target.https)
                             greet(target);
                           else
                             ask(stream);
                         }));
    io.run();
  }
};

}  // namespace

std::string http_target::authority() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

std::string http_target::url() const {
  return fmt::format("{}://{}{}", https ? "https" : "http", authority(), base_path);
}

expected<http_target> parse_url(const std::string& url) {
  constexpr std::string_view plain = "http://";
  constexpr std::string_view encrypted = "https://";
  std::string_view rest = url;
  const bool https = rest.starts_with(encrypted);
  if (!https && !rest.starts_with(plain))
    return error{"url_invalid", fmt::format("\"{}\" does not begin with http:// or https://", url)};
  rest.remove_prefix(https ? encrypted.size() : plain.size());
  const auto slash = std::min(rest.find('/'), rest.size());
  auto authority = rest.substr(0, slash);
  auto path = rest.substr(slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  if (path.ends_with("/v1")) path.remove_suffix(3);

  http_target target;
  target.base_path = std::string{path};
  target.https = https;
  target.port = https ? "443" : "80";
  if (authority.starts_with('[')) {
    const auto end = authority.find(']');
    if (end == std::string_view::npos)
      return error{"url_invalid", fmt::format("\"{}\" has no closing bracket", url)};
    target.host = std::string{authority.substr(1, end - 1)};
    authority.remove_prefix(end + 1);
  } else {
    const auto colon = std::min(authority.find(':'), authority.size());
    target.host = std::string{authority.substr(0, colon)};
    authority.remove_prefix(colon);
  }
  if (authority.starts_with(':')) {
    target.port = std::string{authority.substr(1)};
    authority = {};
  }
  std::uint16_t port = 0;
  const auto* end = target.port.data() + target.port.size();
  const auto [stop, wrong] = std::from_chars(target.port.data(), end, port);
  if (target.host.empty() || !authority.empty() || wrong != std::errc{} || stop != end || port == 0)
    return error{"url_invalid",
                 fmt::format("\"{}\" is not {}host:port", url, https ? encrypted : plain)};
  return target;
}

expected<http_answer> get(const http_target& target, const std::string& path,
                          milliseconds timeout) {
  fetch f;
  beast::error_code failure;
  const auto addresses = asio::ip::tcp::resolver{f.io}.resolve(target.host, target.port, failure);
  if (failure)
    return error{"connect_failed", fmt::format("{}: {}", target.authority(), failure.message())};
  f.request = {http::verb::get, target.base_path + path, 11};
  f.request.set(http::field::host, target.authority());
  f.request.set(http::field::connection, "close");
  for (const auto& [name, value] : target.headers) f.request.set(name, value);
  f.run(target, addresses, timeout);
  if (!f.failure) return http_answer{f.response.result_int(), std::move(f.response.body())};
  if (f.failure != beast::error::timeout && f.step == std::string_view{"greet"})
    return error{"tls_failed", fmt::format("{}: {}", target.authority(),
                                           handshake_failure(f.tls->native_handle(), f.failure))};
  const auto* code = f.failure == beast::error::timeout      ? "timeout"
                     : f.step == std::string_view{"connect"} ? "connect_failed"
                                                             : "broken_answer";
  return error{code, fmt::format("{}: {}", target.authority(), f.failure.message())};
}

expected<void> await_ready(const http_target& target, milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  std::string last;
  while (true) {
    const auto answer = get(target, "/readyz", poll_timeout);
    if (answer && answer->status == 200) return ok;
    last = answer ? fmt::format("HTTP {} {}", answer->status, answer->body)
                  : answer.error().message;
    if (std::chrono::steady_clock::now() >= end)
      return error{"not_ready", fmt::format("not ready after {} ms: {}", timeout.count(), last)};
    std::this_thread::sleep_for(poll_interval);
  }
}

expected<std::string> first_model(const http_target& target) {
  const auto answer = get(target, "/v1/models", models_timeout);
  if (!answer) return answer.error();
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  std::string_view id;
  if (answer->status != 200 || parser.parse(answer->body).get(root) ||
      root["data"].at(0)["id"].get(id))
    return error{"no_model", fmt::format("{} lists no model (HTTP {}); name one with --model",
                                         target.authority(), answer->status)};
  return std::string{id};
}

}  // namespace troupe::bench
