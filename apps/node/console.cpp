#include "apps/node/console.hpp"
#include "apps/node/log.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace troupe::apps {

void say(const std::string& line) {
  constexpr std::chrono::milliseconds patience{1'000};
  (void)std::fflush(stdout);
  (void)write_patiently(STDOUT_FILENO, line + "\n", patience);
}

}  // namespace troupe::apps
