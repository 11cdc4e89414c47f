#include "gpu/engine/llama/device_class.hpp"

#include <fmt/format.h>
#include <ggml-backend.h>

#include <fstream>
#include <iterator>

namespace troupe::engine {

std::string processor_name(std::string_view cpuinfo) {
  constexpr std::string_view key = "model name";
  const auto at = cpuinfo.find(key);
  if (at == std::string_view::npos) return "CPU";
  auto line = cpuinfo.substr(at, cpuinfo.find('\n', at) - at);
  const auto colon = line.find(':');
  const auto first = colon == std::string_view::npos ? colon
                                                     : line.find_first_not_of(" \t", colon + 1);
  if (first == std::string_view::npos) return "CPU";
  line = line.substr(first);
  return std::string(line.substr(0, line.find_last_not_of(" \t\r") + 1));
}

std::string device_class(std::int32_t gpu_layers, std::int32_t threads) {
  if (gpu_layers > 0)
    if (auto* gpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU))
      return fmt::format("{}, {} layers", ggml_backend_dev_description(gpu), gpu_layers);
  std::ifstream in{"/proc/cpuinfo"};
  const std::string text{std::istreambuf_iterator<char>{in}, {}};
  return fmt::format("{}, {} thread{}", processor_name(text), threads, threads == 1 ? "" : "s");
}

}  // namespace troupe::engine
