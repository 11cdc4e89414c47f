#include "actors/link/guarded.hpp"

#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdint>

namespace troupe::link {

void note_malformed(const char* schema, const origin& from, const kj::Exception& why) {
  static std::atomic<std::uint64_t> count{0};
  const auto n = ++count;
  // A peer that goes on like this must not fill the log: the first one, and each doubling.
  if ((n & (n - 1)) != 0) return;
  spdlog::warn("event=malformed_message schema={} from={:.100} to={:.100} count={} reason=\"{}\"",
               schema, from.from.name, from.to.name, n, why.getDescription().cStr());
}

}  // namespace troupe::link
