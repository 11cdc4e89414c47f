#include "actors/link/waiting_room.hpp"

#include <sys/socket.h>

namespace troupe::link {

void waiting_room::end_first() {
  ::shutdown(all_.front().fd, SHUT_RDWR);
  all_.pop_front();
}

void waiting_room::end_late(clock::time_point now) {
  while (!all_.empty() && now - all_.front().since >= proof_timeout) end_first();
}

void waiting_room::enter(int fd, clock::time_point now) {
  const std::lock_guard lock{mutex_};
  end_late(now);
  if (all_.size() >= unproved_max) end_first();
  all_.push_back({fd, now});
}

void waiting_room::leave(int fd) {
  const std::lock_guard lock{mutex_};
  all_.remove_if([fd](const guest& x) { return x.fd == fd; });
}

void waiting_room::sweep(clock::time_point now) {
  const std::lock_guard lock{mutex_};
  end_late(now);
}

std::size_t waiting_room::size() const {
  const std::lock_guard lock{mutex_};
  return all_.size();
}

}  // namespace troupe::link
