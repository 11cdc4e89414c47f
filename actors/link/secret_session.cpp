#include "actors/link/secret_session.hpp"

#include <openssl/crypto.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace troupe::link {

namespace {
/// Read ahead at most; longer pieces go where they are wanted.
constexpr std::size_t ahead_bytes_max = 16 * 1024;
}  // namespace

secret_session::secret_session(int fd, bool connects, std::shared_ptr<const secret_options> o)
    : options_(std::move(o)), fd_(fd), connects_(connects) {
  if (connects) early_.assign(options_->secret.begin(), options_->secret.end());
}

session::result secret_session::refuse(const char* why) {
  if (!std::exchange(over_, true) && options_->on_refused)
    options_->on_refused({"bad_secret", why});
  return result::over;
}

session::result secret_session::receive(void* into, std::size_t size, std::size_t& got) const {
  const auto n = ::recv(fd_, into, size, 0);
  if (n > 0) {
    got = static_cast<std::size_t>(n);
    return result::done;
  }
  got = 0;
  const bool later = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  return later ? result::again : result::over;
}

session::result secret_session::receive_ahead(void* into, std::size_t size, std::size_t& got) {
  if (pending() == 0) {
    if (size >= ahead_bytes_max) return receive(into, size, got);
    ahead_.resize(ahead_bytes_max);
    ahead_begin_ = ahead_end_ = 0;
    if (const auto r = receive(ahead_.data(), ahead_.size(), ahead_end_); r != result::done)
      return r;
  }
  got = std::min(size, pending());
  std::memcpy(into, ahead_.data() + ahead_begin_, got);
  ahead_begin_ += got;
  return result::done;
}

session::result secret_session::send(const void* bytes, std::size_t size,
                                     std::size_t& taken) const {
  const auto n = ::send(fd_, bytes, size, MSG_NOSIGNAL);
  if (n >= 0) {
    taken = static_cast<std::size_t>(n);
    return result::done;
  }
  taken = 0;
  const bool later = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  return later ? result::again : result::over;
}

session::result secret_session::flush_early() {
  if (early_.empty()) return result::done;
  const auto words = std::exchange(early_, {});
  std::size_t taken = 0;
  // It is short, and the socket is empty: all of it fits.
  const auto r = send(words.data(), words.size(), taken);
  return r == result::done && taken == words.size() ? result::done : result::over;
}

/// Until the other side may be listened to.
session::result secret_session::prove() {
  if (over_) return result::over;
  if (proved_) return result::done;
  if (!connects_) {
    const auto& secret = options_->secret;
    shown_.resize(secret.size());
    while (shown_bytes_ < secret.size()) {
      std::size_t got = 0;
      const auto r = receive(shown_.data() + shown_bytes_, secret.size() - shown_bytes_, got);
      if (r == result::over) return refuse("somebody came and went without the secret");
      if (r == result::again) return r;
      shown_bytes_ += got;
    }
    if (CRYPTO_memcmp(shown_.data(), secret.data(), secret.size()) != 0)
      return refuse("it does not know the secret of this start: it is no child of this node");
    shown_ = {};
  }
  proved_ = true;
  return flush_early();
}

session::result secret_session::read(void* into, std::size_t size, std::size_t& got) {
  got = 0;
  if (const auto r = prove(); r != result::done) return r;
  const auto r = receive_ahead(into, size, got);
  heard_ = heard_ || got > 0;
  if (r == result::over && connects_ && !heard_)
    return refuse("the node ended the connection before a word: this is not its secret");
  return r;
}

session::result secret_session::write(const void* bytes, std::size_t size, std::size_t& taken) {
  taken = 0;
  if (!proved_) {
    // Only reading tells who is there.
    if (connects_ && prove() != result::done) return result::over;
  }
  if (over_) return result::over;
  if (size == 0) return result::done;
  if (proved_) return send(bytes, size, taken);
  if (early_.size() + size > early_bytes_max) return refuse("too much was to be said before it");
  early_.append(static_cast<const char*>(bytes), size);
  taken = size;
  return result::done;
}

guard secret_guard(std::shared_ptr<const secret_options> o) {
  guard out;
  out.accept = [o](int fd, const endpoint&) {
    return std::make_unique<secret_session>(fd, false, o);
  };
  out.knows = [](const endpoint&) { return true; };
  out.connect = [o](int fd, const endpoint&) {
    return std::make_unique<secret_session>(fd, true, o);
  };
  return out;
}

}  // namespace troupe::link
