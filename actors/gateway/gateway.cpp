#include "actors/gateway/gateway.hpp"

#include "actors/gateway/api.hpp"
#include "actors/gateway/http/server.hpp"
#include "actors/gateway/metrics.hpp"

#include <prometheus/registry.h>
#include <spdlog/spdlog.h>
#include <sys/random.h>

#include <random>
#include <utility>

namespace troupe::gateway {

namespace {

std::uint64_t system_random() {
  std::uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) {
    std::random_device device;
    bits = (std::uint64_t{device()} << 32U) | device();
  }
  return bits;
}

gateway_options completed(gateway_options o) {
  if (!o.random) o.random = system_random;
  if (!o.metrics) o.metrics = std::make_shared<prometheus::Registry>();
  return o;
}

}  // namespace

class http_gateway::impl {
 public:
  impl(gateway_options options, std::shared_ptr<request::desk> desk)
      : options_(completed(std::move(options))),
        counts_(std::make_shared<metrics>(options_.metrics)),
        api_(options_, std::move(desk), counts_),
        server_(server_options(), [this](auto&& r, const auto& to) {
          api_.handle(std::forward<decltype(r)>(r), to);
        }) {}

  expected<void> start() {
    auto started = server_.start();
    if (started)
      spdlog::info("gateway event=listening address={} port={} tls={}", options_.address,
                   server_.local_port(), options_.credentials ? "yes" : "no");
    return started;
  }

  void announce_drain() { api_.set_draining(); }
  void drain(std::function<void()> done) {
    api_.set_closing();
    server_.drain(options_.drain_notice, options_.limits.drain_timeout, std::move(done));
  }

  http::server& server() { return server_; }

 private:
  http::server_options server_options() {
    return {
        .address = options_.address,
        .port = options_.port,
        .server_names = options_.server_names,
        .limits = options_.limits,
        .events = {.connections = [counts = counts_](std::size_t n) { counts->connections(n); },
                   .refused = [counts = counts_](const std::string& what) { counts->lost(what); }},
        .credentials = options_.credentials};
  }

  gateway_options options_;
  std::shared_ptr<metrics> counts_;
  api api_;
  http::server server_;
};

http_gateway::http_gateway(gateway_options options, std::shared_ptr<request::desk> desk)
    : impl_(std::make_unique<impl>(std::move(options), std::move(desk))) {}

http_gateway::~http_gateway() = default;

expected<void> http_gateway::start() { return impl_->start(); }
std::uint16_t http_gateway::local_port() const { return impl_->server().local_port(); }
void http_gateway::announce_drain() { impl_->announce_drain(); }
void http_gateway::drain(std::function<void()> done) { impl_->drain(std::move(done)); }
void http_gateway::stop() { impl_->server().stop(); }

}  // namespace troupe::gateway
