#pragma once

#include "actors/trust/certificate.hpp"
#include "messages/base/expected.hpp"

#include <openssl/types.h>

#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>

namespace troupe::trust {

/// Files are looked at this often at most, when a connection begins.
inline constexpr std::chrono::milliseconds look_interval{1'000};

/// What one side of TLS shows and asks for.
struct credential_files {
  std::string certificate;  ///< with its chain behind it
  std::string key;
  std::string ca;  ///< who must have signed the peer's certificate; empty: peers need none
};

/// For whom a context is made.
enum class tls_use : std::uint8_t {
  clients,  ///< an HTTP port: TLS 1.2 and later, ALPN http/1.1
  cluster,  ///< links and consoles, both ends of which are ours: TLS 1.3, certificates both ways
};

/// A TLS context made from files, and made anew once they change: connections that are open keep
/// the context with which they began. New files that do not fit are refused and logged, and the old
/// ones stay in use. Thread-safe.
class credentials {
 public:
  using clock = std::chrono::steady_clock;

  /// Errors, each with the file's path: `file_unreadable`, `certificate_unreadable`,
  /// `key_unreadable`, `key_mismatch`, `not_signed_by_ca`, `certificate_expired`,
  /// `certificate_not_yet_valid`, `openssl_failed`.
  static expected<std::shared_ptr<credentials>> load(credential_files files, tls_use use);

  /// For a connection that begins now.
  std::shared_ptr<SSL_CTX> context(clock::time_point now);
  /// What its own certificate says.
  facts own() const;

 private:
  /// Of a file: whether it is still the same. All zero: it cannot be looked at.
  struct stamp {
    std::int64_t modified_ns = 0;
    std::uint64_t inode = 0, size = 0;
    friend bool operator==(const stamp&, const stamp&) = default;
  };
  using stamps = std::array<stamp, 3>;
  struct loaded {
    std::shared_ptr<SSL_CTX> context;
    facts own;
  };

  credentials(credential_files files, tls_use use) : files_(std::move(files)), use_(use) {}
  stamps look() const;
  expected<loaded> read() const;

  const credential_files files_;
  const tls_use use_;
  mutable std::mutex mutex_;
  loaded now_;
  stamps seen_{};
  clock::time_point looked_{};
};

/// The facts of the certificate that the peer of a finished handshake has shown; role `none`: it
/// showed none.
facts peer_of(const SSL* connection);

}  // namespace troupe::trust
