#pragma once

#include "gpu/transfer/backend.hpp"

#include <memory>
#include <string>

namespace troupe::transfer::ucx {

/// Which of UCX's transports serve which peers. UCX_TLS in the environment stands for both where an
/// option is empty.
struct options {
  std::string local_tls;  ///< peers on this host; default: shared memory (`posix,sysv,cma`);
                          ///< "none": no such peers
  std::string
      network_tls;  ///< peers elsewhere; default: all but shared memory; "none": no such peers
  /// Numeric IP address at which peers on other hosts reach this one; a port is chosen by the
  /// system and carried in `local_address()`.
  std::string listen_address = "127.0.0.1";
  std::string net_devices;  ///< as UCX_NET_DEVICES; default: UCX's choice
};

/// A backend over UCX's active messages with rendezvous. Peers on other hosts get endpoints that
/// notice a failed peer by themselves; peers on this host get shared memory, which is three times
/// as fast and notices nothing, so that their end has to be told by `disconnect(certainly_dead)`.
///
/// `sink` outlives the backend; it is called on the progress thread from the moment that this
/// returns. Errors: `transport_unavailable`, naming the lane.
expected<std::unique_ptr<backend>> make_backend(const options& how, events& sink);

}  // namespace troupe::transfer::ucx
