#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <vector>

namespace troupe::test {

/// Lets this process open just so many descriptors more.
class few_descriptors {
 public:
  explicit few_descriptors(std::size_t left) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    std::vector<int> taken;
    // The lowest free numbers are given out first: the limit is the number after the last allowed.
    for (std::size_t i = 0; i <= left; ++i) taken.push_back(::open("/dev/null", O_RDONLY));
    auto now = before_;
    now.rlim_cur = static_cast<rlim_t>(taken.back());
    ::setrlimit(RLIMIT_NOFILE, &now);
    for (int fd : taken) ::close(fd);
  }
  ~few_descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  few_descriptors(const few_descriptors&) = delete;
  few_descriptors& operator=(const few_descriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace troupe::test
