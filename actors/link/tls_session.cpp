#include "actors/link/tls_session.hpp"

#include "actors/trust/openssl_handles.hpp"

#include <algorithm>
#include <limits>

namespace troupe::link {

namespace {

/// Given to the socket at a time, so that one connection doesn't keep the others waiting.
constexpr std::size_t write_bytes_max = 256 * 1024;

int length(std::size_t size) {
  return static_cast<int>(std::min<std::size_t>(size, std::numeric_limits<int>::max()));
}

/// What is wrong with a peer's certificate, and what to do.
std::string verdict_on(long verdict) {
  std::string out = "its certificate: ";
  out += X509_verify_cert_error_string(verdict);
  switch (verdict) {
  case X509_V_ERR_CERT_HAS_EXPIRED:
    return out + "; `troupe cert renew` makes a new one";
  case X509_V_ERR_HOSTNAME_MISMATCH:
    return out + "; each host needs the certificate of its own name";
  default:
    return out + "; all certificates of a cluster are made by one CA, and `troupe cert show` says "
                 "which are not";
  }
}

/// What a failed exchange means, and what to do.
std::string explained(const char* at, const std::string& reasons) {
  const auto has = [&](const char* what) { return reasons.find(what) != std::string::npos; };
  std::string out = std::string{at} + ": " + reasons;
  if (has("alert unknown ca") || has("alert certificate expired") || has("certificate required") ||
      has("alert bad certificate"))
    return out + "; the other side does not take this host's certificate: `troupe cert show` looks "
                 "at all of them";
  if (has("wrong version number") || has("http request") || has("unsupported protocol") ||
      has("packet length"))
    return out + "; is insecure_links set there, and not here?";
  return out;
}

}  // namespace

std::uint64_t tls_peers::add(const endpoint& at, trust::facts who) {
  const std::lock_guard lock{mutex_};
  known_[at] = {next_, std::move(who)};
  return next_++;
}

void tls_peers::remove(const endpoint& at, std::uint64_t number) {
  const std::lock_guard lock{mutex_};
  // The port may have been taken by a later connection.
  if (auto i = known_.find(at); i != known_.end() && i->second.first == number) known_.erase(i);
}

std::optional<trust::facts> tls_peers::find(const endpoint& at) const {
  const std::lock_guard lock{mutex_};
  auto i = known_.find(at);
  // Without an address: the connection is over.
  return i == known_.end() || at.second == 0 ? std::nullopt : std::optional{i->second.second};
}

tls_session::tls_session(int fd, endpoint remote, std::string expected_host,
                         std::shared_ptr<const tls_options> o)
    : options_(std::move(o)), remote_(std::move(remote)), expected_host_(std::move(expected_host)) {
  const auto context = options_->credentials->context(trust::credentials::clock::now());
  tls_ = {SSL_new(context.get()), &SSL_free};
  const bool connects = !expected_host_.empty();
  if (!tls_ || SSL_set_fd(tls_.get(), fd) != 1 ||
      (connects && SSL_set1_host(tls_.get(), expected_host_.c_str()) != 1)) {
    tls_ = nullptr;
    refuse("no memory for it");
    return;
  }
  if (!connects) {
    SSL_set_accept_state(tls_.get());
    return;
  }
  SSL_set_connect_state(tls_.get());
  SSL_set_hostflags(tls_.get(), X509_CHECK_FLAG_NO_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
}

tls_session::~tls_session() {
  if (number_ != 0) options_->peers->remove(remote_, number_);
  // One word for the peer, if it can be had without waiting.
  if (tls_ && greeted_ && !broken_) SSL_shutdown(tls_.get());
  ERR_clear_error();
}

void tls_session::refuse(const std::string& why) {
  if (std::exchange(refused_, true) || !options_->on_refused) return;
  const auto whom = expected_host_.empty() ? "who connects from " + remote_.first
                                           : "host '" + expected_host_ + "' at " + remote_.first;
  options_->on_refused(expected_host_, {"tls_refused", "no TLS with " + whom + ": " + why});
}

bool tls_session::approve() {
  auto who = trust::peer_of(tls_.get());
  const auto& roles = options_->roles;
  if (std::find(roles.begin(), roles.end(), who.as) == roles.end()) {
    refuse("its certificate is for the role " + std::string{trust::to_string(who.as)} +
           ", which has no access here");
    return false;
  }
  number_ = options_->peers->add(remote_, std::move(who));
  return true;
}

session::result tls_session::failed(int returned, const char* at) {
  switch (SSL_get_error(tls_.get(), returned)) {
  case SSL_ERROR_WANT_READ:
  case SSL_ERROR_WANT_WRITE:
    return result::again;
  case SSL_ERROR_SSL: {
    broken_ = true;
    const auto verdict = SSL_get_verify_result(tls_.get());
    const auto reasons = trust::openssl_reasons();
    refuse(verdict == X509_V_OK ? explained(at, reasons) : verdict_on(verdict));
    return result::over;
  }
  case SSL_ERROR_SYSCALL:
    broken_ = true;
    [[fallthrough]];
  default:
    // It just went away; in the handshake, that is how somebody looks who did not like us.
    if (!greeted_) refuse("the connection ended before the handshake did");
    return result::over;
  }
}

session::result tls_session::greet() {
  if (!tls_ || refused_) return result::over;
  if (greeted_) return result::done;
  ERR_clear_error();
  const int n = SSL_do_handshake(tls_.get());
  if (n != 1) return failed(n, "the handshake");
  if (!approve()) return result::over;
  greeted_ = true;
  if (early_.empty()) return result::done;
  const auto words = std::exchange(early_, {});
  std::size_t taken = 0;
  // It is short, and the socket is empty but for the handshake: all of it fits.
  if (write(words.data(), words.size(), taken) != result::done || taken != words.size())
    return result::over;
  return result::done;
}

session::result tls_session::read(void* into, std::size_t size, std::size_t& got) {
  got = 0;
  if (const auto r = greet(); r != result::done) return r;
  ERR_clear_error();
  const int n = SSL_read(tls_.get(), into, length(size));
  if (n <= 0) return failed(n, "reading");
  got = static_cast<std::size_t>(n);
  return result::done;
}

session::result tls_session::write(const void* bytes, std::size_t size, std::size_t& taken) {
  taken = 0;
  if (!greeted_) {
    if (const auto r = greet(); r == result::over) return r;
  }
  if (size == 0) return result::done;
  const auto* from = static_cast<const char*>(bytes);
  if (!greeted_) {
    // Kept here, and not by the caller, who would look at the socket again and again.
    if (early_.size() + size > early_bytes_max) {
      refuse("too much was to be said before the end of the handshake");
      return result::over;
    }
    early_.append(from, size);
    taken = size;
    return result::done;
  }
  // Record by record.
  while (taken < size && taken < write_bytes_max) {
    ERR_clear_error();
    const int n = SSL_write(tls_.get(), from + taken, length(size - taken));
    if (n <= 0) {
      const auto r = failed(n, "writing");
      return r == result::again && taken > 0 ? result::done : r;
    }
    taken += static_cast<std::size_t>(n);
  }
  return result::done;
}

std::size_t tls_session::pending() const {
  return tls_ && greeted_ ? static_cast<std::size_t>(SSL_pending(tls_.get())) : 0;
}

guard tls_guard(std::shared_ptr<const tls_options> o) {
  guard out;
  out.accept = [o](int fd, const endpoint& from) {
    return std::make_unique<tls_session>(fd, from, std::string{}, o);
  };
  out.knows = [o](const endpoint& to) { return o->hosts.contains(to); };
  out.connect = [o](int fd, const endpoint& to) -> std::unique_ptr<session> {
    const auto host = o->hosts.find(to);
    return host == o->hosts.end() ? nullptr
                                  : std::make_unique<tls_session>(fd, to, host->second, o);
  };
  return out;
}

}  // namespace troupe::link
