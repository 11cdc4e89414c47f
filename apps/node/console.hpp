#pragma once

#include <string>

namespace troupe::apps {

/// Says a line to the person at the terminal, on stdout. One that cannot be written (a closed pipe,
/// a full disk, nobody who reads for a second) is lost: what serves goes on. Thread-safe.
void say(const std::string& line);

}  // namespace troupe::apps
