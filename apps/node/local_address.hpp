#pragma once

#include "messages/base/expected.hpp"

#include <cstdint>
#include <string>

namespace troupe::apps {

/// Whether this process could listen there, found out by trying. `what` names the listener in the
/// message (`links of host h0`). Errors: `port_in_use`, `address_not_ours`, `cannot_listen`, each
/// naming address and port.
expected<void> check_listen_address(const std::string& what, const std::string& address,
                                    std::uint16_t port);

}  // namespace troupe::apps
