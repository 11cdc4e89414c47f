#pragma once

#include "gpu/transfer/backend.hpp"

#include <ucp/api/ucp.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace troupe::transfer::ucx {

/// A UCX context and everything registered with it; lives until the last region and worker are
/// gone.
struct context_deleter {
  void operator()(ucp_context_h handle) const { ucp_cleanup(handle); }
};
using shared_context = std::shared_ptr<std::remove_pointer_t<ucp_context_h>>;

/// Which peers a lane serves. One UCX context chooses its transports once for all its endpoints, so
/// hosts near and far need one each.
enum class lane_kind : std::uint8_t { local = 0, network = 1 };
inline constexpr std::size_t lane_count = 2;

constexpr lane_kind lane_for(proximity where) {
  return where == proximity::same_host ? lane_kind::local : lane_kind::network;
}

struct lane_options {
  std::string tls;             ///< as UCX_TLS; empty: what the environment or UCX says
  std::string net_devices;     ///< as UCX_NET_DEVICES; empty: likewise
  std::string listen_address;  ///< network lane: the numeric IP address of this host
};

/// Handlers of one lane's incoming active messages and failed endpoints; called inside `progress`.
struct lane_handlers {
  ucp_am_recv_callback_t on_control = nullptr;
  ucp_am_recv_callback_t on_piece = nullptr;
  /// Network lane: somebody connects. Called on a thread of UCX's.
  ucp_listener_conn_callback_t on_connection = nullptr;
  void* argument = nullptr;
};

inline constexpr unsigned am_control = 0;
inline constexpr unsigned am_piece = 1;

/// One UCX context with its worker. The network lane listens on a socket address and is reached
/// there: endpoints made so are pairs, which learn of each other's end; endpoints that UCX 1.13
/// matches by itself, made from worker addresses over TCP, don't always. The local lane is reached
/// by worker address.
///
/// Apart from `context`, only the progress thread (or, before it exists, the maker) may touch it.
class lane {
 public:
  /// Errors: `transport_unavailable`.
  static expected<std::unique_ptr<lane>> open(lane_kind kind, const lane_options& options,
                                              const lane_handlers& handlers);
  ~lane();
  lane(const lane&) = delete;
  lane& operator=(const lane&) = delete;

  lane_kind kind() const { return kind_; }
  const shared_context& context() const { return context_; }
  ucp_worker_h worker() const { return worker_; }
  const std::vector<std::byte>& address() const { return address_; }
  /// Becomes readable when an armed worker has something to do.
  int wake_fd() const { return wake_fd_; }
  /// Whether a peer's death is noticed by the transport itself.
  bool handles_errors() const { return kind_ == lane_kind::network; }
  /// Network lane: whether the address that it listens on is on another network device than when it
  /// was opened. UCX goes by the names of devices that it found then, on either side of a
  /// connection that is being made; those that stand go on.
  bool device_changed() const;

  /// Errors: `peer_unreachable`. `on_failure(argument, ...)` is called inside `progress`.
  expected<ucp_ep_h> connect(std::span<const std::byte> address, ucp_err_handler_cb_t on_failure,
                             void* argument);
  /// The other side of `connect` on the network lane.
  expected<ucp_ep_h> accept(ucp_conn_request_h request, ucp_err_handler_cb_t on_failure,
                            void* argument);
  void reject(ucp_conn_request_h request) { ucp_listener_reject(listener_, request); }
  /// Nobody connects any more.
  void stop_listening();
  /// Whether anything happened.
  bool progress() { return ucp_worker_progress(worker_) != 0; }
  /// Prepares for sleep; false: something came meanwhile, progress again.
  bool arm() { return ucp_worker_arm(worker_) == UCS_OK; }

 private:
  expected<void> listen(const lane_options& options, const lane_handlers& handlers);
  expected<void> take_worker_address();
  expected<ucp_ep_h> make_endpoint(ucp_ep_params_t& params, ucp_err_handler_cb_t on_failure,
                                   void* argument);

  lane(lane_kind kind, shared_context context) : kind_(kind), context_(std::move(context)) {}

  lane_kind kind_;
  shared_context context_;
  ucp_worker_h worker_ = nullptr;
  ucp_listener_h listener_ = nullptr;
  std::vector<std::byte> address_;
  std::string device_;  ///< that its listening address is on; empty: on none, or on all
  int wake_fd_ = -1;
};

}  // namespace troupe::transfer::ucx
