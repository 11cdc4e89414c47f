#pragma once

#include "actors/link/session.hpp"
#include "actors/trust/credentials.hpp"
#include "messages/base/expected.hpp"

#include <openssl/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::link {

/// Who is at the other end of each connection, by its remote address and port: what the listener of
/// links holds against the name that a peer gives itself. Thread-safe.
class tls_peers {
 public:
  /// The number by which it is taken out again.
  std::uint64_t add(const endpoint& at, trust::facts who);
  void remove(const endpoint& at, std::uint64_t number);
  std::optional<trust::facts> find(const endpoint& at) const;

 private:
  mutable std::mutex mutex_;
  std::uint64_t next_ = 1;
  std::map<endpoint, std::pair<std::uint64_t, trust::facts>> known_;
};

struct tls_options {
  std::shared_ptr<trust::credentials> credentials;
  std::shared_ptr<tls_peers> peers = std::make_shared<tls_peers>();
  /// Which host is where: to others nothing connects.
  std::map<endpoint, std::string> hosts;
  /// Hears why a connection came to nothing (`tls_refused`), and of whom we were to meet there;
  /// empty: whoever came to us. On the connection's thread.
  std::function<void(const std::string& host, const error& why)> on_refused;
  /// What a peer's certificate must be for.
  std::vector<trust::role> roles = {trust::role::host};
};

/// One end of a TLS connection. The handshake goes on with each read.
class tls_session final : public session {
 public:
  /// `expected_host`: whom we connect to; the certificate must have this name. Empty: we were
  /// connected to.
  tls_session(int fd, endpoint remote, std::string expected_host,
              std::shared_ptr<const tls_options> o);
  ~tls_session() override;

  result read(void* into, std::size_t size, std::size_t& got) override;
  result write(const void* bytes, std::size_t size, std::size_t& taken) override;
  std::size_t pending() const override;
  bool proved() const override { return greeted_; }

 private:
  result greet();
  result failed(int returned, const char* at);
  bool approve();
  void refuse(const std::string& why);

  const std::shared_ptr<const tls_options> options_;
  const endpoint remote_;
  const std::string expected_host_;
  std::shared_ptr<SSL> tls_;
  bool greeted_ = false;
  bool broken_ = false;  ///< by an error after which nothing may be said any more
  bool refused_ = false;
  std::uint64_t number_ = 0;
  std::string early_;  ///< written before the end of the handshake
};

/// Connections by TLS, certificates both ways.
guard tls_guard(std::shared_ptr<const tls_options> o);

}  // namespace troupe::link
