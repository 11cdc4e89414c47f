#pragma once

#include "actors/trust/certificate.hpp"
#include "config/cluster.hpp"

#include <string>
#include <vector>

namespace troupe::trust {

/// A longer file is no certificate.
inline constexpr std::size_t pem_bytes_max = 1U << 20U;

/// Where the certificates of a cluster lie: one folder, the same on all hosts, of which each host
/// needs `ca.pem` and its own two files. The CA's key is needed by `troupe cert` only.
struct certificate_folder {
  std::string path;

  std::string ca() const { return path + "/ca.pem"; }
  std::string ca_key() const { return path + "/ca.key"; }
  std::string host(const std::string& name) const { return path + "/host-" + name + ".pem"; }
  std::string host_key(const std::string& name) const { return path + "/host-" + name + ".key"; }
  std::string console(const std::string& name) const { return path + "/console-" + name + ".pem"; }
  std::string console_key(const std::string& name) const {
    return path + "/console-" + name + ".key";
  }
};

/// What a host's certificate must say: its name and address, and those at which it serves clients
/// and consoles.
request host_request(const config::cluster& c, const config::host& h);

/// Of consoles that have a certificate in the folder; sorted.
std::vector<std::string> console_names(const certificate_folder& folder);

/// Errors: `file_unreadable` with the path and the system's reason.
expected<std::string> read_pem_file(const std::string& path);

/// What may be done to a file that is there.
enum class existing : std::uint8_t { keep, replace };

/// Writes by a new file that takes the place of the old one at once, so that nobody reads half of
/// it. Keys get mode 0600, and others 0644. Errors: `file_exists` (with `keep`),
/// `file_unwritable`.
expected<void> write_pem_file(const std::string& path, const std::string& text, bool is_key,
                              existing old);

/// Both files, the key first.
expected<void> write_identity(const std::string& certificate_path, const std::string& key_path,
                              const identity_pem& what, existing old);

/// Reads both files, and checks that they belong together. Errors name the file.
expected<identity_pem> read_identity(const std::string& certificate_path,
                                     const std::string& key_path);

}  // namespace troupe::trust
