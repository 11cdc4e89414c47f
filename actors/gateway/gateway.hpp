#pragma once

#include "actors/admission/current_keys.hpp"
#include "actors/request/submission.hpp"
#include "actors/trust/credentials.hpp"
#include "config/cluster.hpp"
#include "messages/base/expected.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace prometheus {
class Registry;
}

namespace troupe::gateway {

struct gateway_options {
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;                 ///< 0: any free one
  std::vector<std::string> server_names;  ///< `gateway.server_names` of the cluster file
  config::limits limits;
  std::shared_ptr<trust::credentials> credentials;  ///< null: plain HTTP; else HTTPS only
  /// Of the cluster: seeds the byte chains of those who have no key of their own, so that nobody
  /// outside can compute or compare them.
  std::uint64_t chain_key = 0;
  /// Who may send requests; null, or without keys: everybody.
  std::shared_ptr<const admission::current_keys> keys;
  /// All models of the cluster file: known also while nobody serves them yet.
  std::vector<std::string> models;
  /// `system_fingerprint` of answers.
  std::string fingerprint = "fp_troupe";
  /// How long new connections are still taken, and their requests refused, once it is drained.
  std::chrono::milliseconds drain_notice{200};
  /// Where `/metrics` reads and the gateway counts; null: one of its own.
  std::shared_ptr<prometheus::Registry> metrics;
  /// 64 random bits; null: the operating system's.
  std::function<std::uint64_t()> random;
};

/// The OpenAI API over HTTP: parses and checks, submits to the desk, and encodes what comes back.
/// Public functions are thread-safe.
class http_gateway {
 public:
  http_gateway(gateway_options options, std::shared_ptr<request::desk> desk);
  /// Stops.
  ~http_gateway();
  http_gateway(const http_gateway&) = delete;
  http_gateway& operator=(const http_gateway&) = delete;

  /// Errors: `port_in_use`, `address_not_ours`, `address_invalid`, `listen_failed`.
  expected<void> start();
  std::uint16_t local_port() const;
  /// `/readyz` says no from now on; requests are served as before.
  void announce_drain();
  /// `/readyz` says no at once and new requests get 503. `done` is called once, on the I/O thread,
  /// when no answer is open any more; those that still are after `limits.drain_timeout` end with an
  /// error event.
  void drain(std::function<void()> done);
  /// Ends open answers with an error and joins the I/O thread. Not from the I/O thread.
  void stop();

 private:
  class impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace troupe::gateway
