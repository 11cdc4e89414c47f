#pragma once

#include "actors/admission/current_keys.hpp"
#include "actors/gateway/gateway.hpp"
#include "actors/gateway/http/server.hpp"
#include "actors/gateway/metrics.hpp"
#include "actors/gateway/openai/request.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace troupe::gateway {

/// The routes: what each answers at once, and what it submits to the desk. `handle` runs on the I/O
/// thread and never blocks; the answers of the desk come from other threads.
class api {
 public:
  api(const gateway_options& options, std::shared_ptr<request::desk> desk,
      std::shared_ptr<metrics> counts);

  void handle(http::request&& r, const std::shared_ptr<http::responder>& to);
  /// `/readyz` says no from now on.
  void set_draining() { draining_ = true; }
  /// New requests are refused from now on.
  void set_closing() { draining_ = closing_ = true; }

 private:
  struct call;  // one request on its way through here
  struct route;
  enum class access : std::uint8_t { anybody, tenants, operators, both };

  void complete(call& c);
  void models(call& c);
  void model(call& c);
  void health(call& c);
  void ready(call& c);
  void debug_request(call& c);
  void debug_workers(call& c);
  void show_metrics(call& c);

  void reply(call& c, http::reply r);
  void fail(call& c, openai::api_error e);
  bool check_key(call& c, access to);
  bool check_content(call& c);
  bool check_model(call& c, const std::string& name);
  bool read_timeout(call& c, std::chrono::milliseconds& out);
  std::vector<request::desk::model_state> known_models() const;
  std::vector<request::desk::model_state> models_for(const call& c) const;
  request::request_id new_id();

  config::limits limits_;
  std::vector<std::string> models_;
  std::string fingerprint_;
  std::int64_t created_;
  openai::parse_options parse_options_;
  std::shared_ptr<request::desk> desk_;
  std::shared_ptr<metrics> counts_;
  std::shared_ptr<const admission::current_keys> keys_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> closing_{false};
};

}  // namespace troupe::gateway
