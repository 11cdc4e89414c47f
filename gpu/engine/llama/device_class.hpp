#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::engine {

/// What a model is computed on, such that the same words mean the same speed: "NVIDIA H200, 99
/// layers" where layers are on a GPU that there is, or else "AMD EPYC 9R14, 4 threads".
std::string device_class(std::int32_t gpu_layers, std::int32_t threads);

/// The processor's name out of /proc/cpuinfo's text; "CPU" where it has none.
std::string processor_name(std::string_view cpuinfo);

}  // namespace troupe::engine
