#include "gpu/transfer/ucx/library.hpp"

#include <fmt/format.h>
#include <ucs/config/global_opts.h>

#include <csignal>
#include <mutex>

// Exported by libucs; its header declares it only in newer versions.
extern "C" void ucs_debug_disable_signal(int signum);

namespace troupe::transfer::ucx {

void prepare_library() {
  static std::once_flag once;
  std::call_once(once, [] {
    // libucs reads the environment and installs its handlers in its constructor, before main: so
    // they are taken away again here.
    for (int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) ucs_debug_disable_signal(signal);
    ucs_global_opts_set_value("ERROR_SIGNALS", "");
    ucs_global_opts_set_value("HANDLE_ERRORS", "none");
    // A peer's death is an event here, reported through `events`, not a line on standard output.
    ucs_global_opts_set_value("LOG_LEVEL", "fatal");
    ucs_global_opts_set_value("WARN_UNUSED_ENV_VARS", "n");
  });
}

error to_error(ucs_status_t status, std::string_view what) {
  const char* code = "transport_failed";
  switch (status) {
  case UCS_ERR_CANCELED:
    code = "cancelled";
    break;
  case UCS_ERR_MESSAGE_TRUNCATED:
    code = "truncated";
    break;
  case UCS_ERR_UNREACHABLE:
  case UCS_ERR_NO_DEVICE:
  case UCS_ERR_INVALID_ADDR:
    code = "peer_unreachable";
    break;
  case UCS_ERR_CONNECTION_RESET:
  case UCS_ERR_ENDPOINT_TIMEOUT:
  case UCS_ERR_NOT_CONNECTED:
  case UCS_ERR_IO_ERROR:
    code = "peer_failed";
    break;
  case UCS_ERR_REJECTED:
    code = "declined";
    break;
  default:
    break;
  }
  return {code, fmt::format("{}: {}", what, ucs_status_string(status))};
}

}  // namespace troupe::transfer::ucx
