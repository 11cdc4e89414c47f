#include "gpu/transfer/ucx/lane.hpp"

#include "gpu/transfer/ucx/library.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <cstring>
#include <optional>
#include <utility>

namespace troupe::transfer::ucx {

namespace {

const char* name_of(lane_kind kind) { return kind == lane_kind::local ? "local" : "network"; }

error unavailable(lane_kind kind, std::string_view step, ucs_status_t status) {
  return {"transport_unavailable",
          fmt::format("UCX lane '{}': {}: {}", name_of(kind), step, ucs_status_string(status))};
}

struct config_deleter {
  void operator()(ucp_config_t* config) const { ucp_config_release(config); }
};

expected<shared_context> make_context(lane_kind kind, const lane_options& options) {
  ucp_config_t* raw = nullptr;
  if (auto status = ucp_config_read(nullptr, nullptr, &raw); status != UCS_OK)
    return unavailable(kind, "reading its configuration", status);
  std::unique_ptr<ucp_config_t, config_deleter> config(raw);
  auto set = [&](const char* key, const std::string& value) {
    return value.empty() ? UCS_OK : ucp_config_modify(config.get(), key, value.c_str());
  };
  if (auto status = set("TLS", options.tls); status != UCS_OK)
    return unavailable(kind, "transports '" + options.tls + "'", status);
  if (auto status = set("NET_DEVICES", options.net_devices); status != UCS_OK)
    return unavailable(kind, "network devices '" + options.net_devices + "'", status);

  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED |
                      UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared =
      1;  // memory is registered from other threads than the one that progresses
  params.name = name_of(kind);
  ucp_context_h handle = nullptr;
  if (auto status = ucp_init(&params, config.get(), &handle); status != UCS_OK)
    return unavailable(kind, "starting", status);
  return shared_context(handle, context_deleter{});
}

/// A socket address with room for either family.
struct socket_address {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  /// From a peer: size and family are checked.
  bool assign(std::span<const std::byte> bytes) {
    if (bytes.size() != sizeof(sockaddr_in) && bytes.size() != sizeof(sockaddr_in6)) return false;
    std::memcpy(&storage, bytes.data(), bytes.size());
    size = static_cast<socklen_t>(bytes.size());
    return storage.ss_family == (bytes.size() == sizeof(sockaddr_in) ? AF_INET : AF_INET6);
  }
};

/// With port 0: the system chooses one.
std::optional<socket_address> parse_ip(const std::string& text) {
  socket_address made;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&made.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&made.storage);
  if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    made.size = sizeof *v4;
    return made;
  }
  if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    made.size = sizeof *v6;
    return made;
  }
  return std::nullopt;
}

bool same_ip(const sockaddr* a, const sockaddr* b) {
  if (a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET)
    return std::memcmp(&reinterpret_cast<const sockaddr_in*>(a)->sin_addr,
                       &reinterpret_cast<const sockaddr_in*>(b)->sin_addr, sizeof(in_addr)) == 0;
  return a->sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

/// As UCX looks for it: the first device with that address. Empty: none.
std::string device_of(const sockaddr* address) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return {};
  std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, &::freeifaddrs);
  for (const auto* one = all; one != nullptr; one = one->ifa_next)
    if (one->ifa_addr != nullptr && same_ip(one->ifa_addr, address)) return one->ifa_name;
  return {};
}

ucs_status_t set_handler(ucp_worker_h worker, unsigned id, ucp_am_recv_callback_t callback,
                         void* argument) {
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                     UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.id = id;
  param.flags = UCP_AM_FLAG_WHOLE_MSG;
  param.cb = callback;
  param.arg = argument;
  return ucp_worker_set_am_recv_handler(worker, &param);
}

}  // namespace

expected<std::unique_ptr<lane>> lane::open(lane_kind kind, const lane_options& options,
                                           const lane_handlers& handlers) {
  prepare_library();
  auto context = make_context(kind, options);
  if (!context) return std::move(context).error();
  std::unique_ptr<lane> made(new lane(kind, *std::move(context)));

  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // made and destroyed by its owner's thread,
                                                    // used by the progress thread in between
  if (auto status = ucp_worker_create(made->context_.get(), &params, &made->worker_);
      status != UCS_OK)
    return unavailable(kind, "making its worker", status);
  if (auto status = set_handler(made->worker_, am_control, handlers.on_control, handlers.argument);
      status != UCS_OK)
    return unavailable(kind, "setting the control handler", status);
  if (auto status = set_handler(made->worker_, am_piece, handlers.on_piece, handlers.argument);
      status != UCS_OK)
    return unavailable(kind, "setting the piece handler", status);
  if (auto status = ucp_worker_get_efd(made->worker_, &made->wake_fd_); status != UCS_OK)
    return unavailable(kind, "asking for its wake-up descriptor", status);

  if (auto reachable = kind == lane_kind::network ? made->listen(options, handlers)
                                                  : made->take_worker_address();
      !reachable)
    return reachable.error();
  return made;
}

lane::~lane() {
  stop_listening();
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
}

void lane::stop_listening() {
  if (listener_ != nullptr) ucp_listener_destroy(std::exchange(listener_, nullptr));
}

expected<void> lane::take_worker_address() {
  ucp_address_t* address = nullptr;
  std::size_t size = 0;
  if (auto status = ucp_worker_get_address(worker_, &address, &size); status != UCS_OK)
    return unavailable(kind_, "asking for its address", status);
  auto first = reinterpret_cast<const std::byte*>(address);
  address_.assign(first, first + size);
  ucp_worker_release_address(worker_, address);
  return ok;
}

expected<void> lane::listen(const lane_options& options, const lane_handlers& handlers) {
  auto where = parse_ip(options.listen_address);
  if (!where)
    return error{"transport_unavailable",
                 fmt::format("'{}' is not a numeric IP address to listen on for KV",
                             options.listen_address)};
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = {where->get(), where->size};
  params.conn_handler = {handlers.on_connection, handlers.argument};
  if (auto status = ucp_listener_create(worker_, &params, &listener_); status != UCS_OK)
    return error{"transport_unavailable",
                 fmt::format("listening for KV on {}: {}", options.listen_address,
                             ucs_status_string(status))};
  ucp_listener_attr_t chosen{};
  chosen.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  if (auto status = ucp_listener_query(listener_, &chosen); status != UCS_OK)
    return unavailable(kind_, "asking for its listening port", status);
  auto first = reinterpret_cast<const std::byte*>(&chosen.sockaddr);
  address_.assign(first, first + where->size);
  device_ = device_of(where->get());
  return ok;
}

bool lane::device_changed() const {
  socket_address where;
  if (device_.empty() || !where.assign(address_)) return false;
  // While the address is nowhere, so is the wire.
  const auto device = device_of(where.get());
  return !device.empty() && device != device_;
}

expected<ucp_ep_h> lane::connect(std::span<const std::byte> address,
                                 ucp_err_handler_cb_t on_failure, void* argument) {
  ucp_ep_params_t params{};
  socket_address where;
  if (kind_ == lane_kind::local) {
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    return make_endpoint(params, on_failure, argument);
  }
  if (!where.assign(address))
    return error{"peer_unreachable", "the peer's KV listening address is malformed"};
  params.field_mask = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr = {where.get(), where.size};
  return make_endpoint(params, on_failure, argument);
}

expected<ucp_ep_h> lane::accept(ucp_conn_request_h request, ucp_err_handler_cb_t on_failure,
                                void* argument) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
  params.conn_request = request;
  return make_endpoint(params, on_failure, argument);
}

expected<ucp_ep_h> lane::make_endpoint(ucp_ep_params_t& params, ucp_err_handler_cb_t on_failure,
                                       void* argument) {
  params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.err_mode = handles_errors() ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
  params.err_handler.cb = on_failure;
  params.err_handler.arg = argument;
  ucp_ep_h endpoint = nullptr;
  if (auto status = ucp_ep_create(worker_, &params, &endpoint); status != UCS_OK)
    return error{"peer_unreachable", fmt::format("UCX lane '{}': connecting: {}", name_of(kind_),
                                                 ucs_status_string(status))};
  return endpoint;
}

}  // namespace troupe::transfer::ucx
