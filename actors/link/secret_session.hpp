#pragma once

#include "actors/link/session.hpp"
#include "messages/base/expected.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace troupe::link {

struct secret_options {
  /// Whoever connects says it first, and nothing is read from who doesn't. Not empty.
  std::vector<std::uint8_t> secret;
  /// Hears, once for a connection, why nothing came of it: `bad_secret`. On the connection's
  /// thread.
  std::function<void(const error& why)> on_refused;
};

/// One end of a connection between processes of one host, which nobody else can read: whoever
/// connects begins with a secret that both know, and then all goes as it is.
class secret_session final : public session {
 public:
  secret_session(int fd, bool connects, std::shared_ptr<const secret_options> o);

  result read(void* into, std::size_t size, std::size_t& got) override;
  result write(const void* bytes, std::size_t size, std::size_t& taken) override;
  std::size_t pending() const override { return ahead_end_ - ahead_begin_; }
  bool proved() const override { return proved_; }

 private:
  result prove();
  result flush_early();
  result receive(void* into, std::size_t size, std::size_t& got) const;
  result receive_ahead(void* into, std::size_t size, std::size_t& got);
  result send(const void* bytes, std::size_t size, std::size_t& taken) const;
  result refuse(const char* why);

  const std::shared_ptr<const secret_options> options_;
  const int fd_;
  const bool connects_;
  bool proved_ = false;
  bool heard_ = false;  ///< anything at all, by who connects
  bool over_ = false;
  std::vector<std::uint8_t> shown_;  ///< as what the other side says is the secret
  std::size_t shown_bytes_ = 0;      ///< of it, so far
  std::string early_;                ///< to be said as soon as it may be
  /// What has come and was not asked for yet. Whoever reads asks for a message's head first and
  /// then for the rest, each a few hundred bytes: with a call of the system for each, calls would
  /// be most of what reading costs.
  std::vector<std::uint8_t> ahead_;
  std::size_t ahead_begin_ = 0;
  std::size_t ahead_end_ = 0;
};

/// Connections that begin with a secret.
guard secret_guard(std::shared_ptr<const secret_options> o);

}  // namespace troupe::link
