#pragma once

#include <sys/resource.h>

#include <cstddef>
#include <fstream>
#include <string>

namespace troupe::test {

/// Sanitizers' allocators end the process where others throw.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool memory_can_be_little = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool memory_can_be_little = false;
#else
inline constexpr bool memory_can_be_little = true;
#endif
#else
inline constexpr bool memory_can_be_little = true;
#endif

/// Lets this process have just so many bytes of memory more: what is larger throws std::bad_alloc.
class little_memory {
 public:
  explicit little_memory(std::size_t left) {
    ::getrlimit(RLIMIT_DATA, &before_);
    std::string word;
    std::size_t kib = 0;
    for (std::ifstream status{"/proc/self/status"}; status >> word;)
      if (word == "VmData:") status >> kib;
    auto now = before_;
    now.rlim_cur = (kib << 10U) + left;
    ::setrlimit(RLIMIT_DATA, &now);
  }
  ~little_memory() { ::setrlimit(RLIMIT_DATA, &before_); }
  little_memory(const little_memory&) = delete;
  little_memory& operator=(const little_memory&) = delete;

 private:
  rlimit before_{};
};

}  // namespace troupe::test
