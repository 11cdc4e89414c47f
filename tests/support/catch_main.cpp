// Catch2's main, compiled once for all test programs.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>

#ifdef __SANITIZE_THREAD__
#include <sys/syscall.h>
#include <unistd.h>

// UCX's memory hooks take its place in every thread's end, and lock there, when ThreadSanitizer has
// already forgotten the thread: the program's own definition comes before theirs.
extern "C" int madvise(void* begin, size_t size, int advice) noexcept {
  return static_cast<int>(::syscall(SYS_madvise, begin, size, advice));
}
#endif
