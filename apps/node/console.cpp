#include "apps/node/console.hpp"

#include <cstdio>

namespace troupe::apps {

void say(const std::string& line) {
  const auto text = line + "\n";
  (void)std::fwrite(text.data(), 1, text.size(), stdout);
  (void)std::fflush(stdout);
}

}  // namespace troupe::apps
