#pragma once

namespace troupe {

/// Exit codes of every `troupe` process, for scripts and for the launcher: a stable surface.
enum exit_code : int {
  exit_ok = 0,
  exit_failure = 1,  ///< a check found something, a measurement fell short
  exit_usage = 2,
  exit_config = 3,   ///< the cluster file is invalid, or names no such host or engine, or a control
                     ///< host's state that is damaged, another program's or not to be written
  exit_address = 4,  ///< port in use, an address that isn't this host's, or a control host's state
                     ///< that cannot be had for now: in use, or its disk is full or fails
  exit_model = 5,    ///< a model is missing or corrupt, or a device that it needs
  exit_refused = 6,  ///< the node did not accept this engine
  exit_internal = 7,
};

/// Whether starting again can't help, so that a launcher must not try.
constexpr bool is_fatal_exit(int code) {
  return code == exit_usage || code == exit_config || code == exit_model;
}

}  // namespace troupe
