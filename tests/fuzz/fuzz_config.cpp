// Whatever stands in a cluster file: a checked cluster, or problems that name a place; never an
// exception or a crash. What is accepted prints as a file that means the same.

#include "config/effective.hpp"
#include "config/parse.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

[[noreturn]] void fault(const char* what) {
  std::fprintf(stderr, "fuzz_config: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe::config;
  const environment env = [](const std::string& name) {
    return name == "HOME" ? std::optional<std::string>{"/home/x"} : std::nullopt;
  };
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const auto result = parse(text, "/c.toml", env);
  if (result.value.has_value() == !result.problems.empty())
    fault("neither or both of value and problems");
  for (const auto& p : result.problems)
    if (p.message.empty() || p.where.file != "/c.toml")
      fault("a problem without a message or a file");
  if (!result) return 0;
  static_cast<void>(print_effective(*result.value, true));
  const auto again = parse(print_effective(*result.value, false), "/c.toml", env);
  if (!again) fault(to_string(again.problems.at(0)).c_str());
  if (again.value->digest != result.value->digest)
    fault("the printed configuration has another digest");
  return 0;
}
