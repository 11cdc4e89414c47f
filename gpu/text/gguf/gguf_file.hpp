#pragma once

#include "messages/base/expected.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

struct llama_model;

namespace troupe::gguf {

struct model_deleter {
  void operator()(llama_model* model) const;
};
using model_ptr = std::unique_ptr<llama_model, model_deleter>;

struct open_options {
  bool vocabulary_only = false;
  std::int32_t gpu_layers = 0;
  /// Called while weights are read, with 0 to 1; false gives up. Empty: nobody asks.
  std::function<bool(float)> progress;
};

/// Opens a GGUF file. Errors name the file and what to do: `model_missing` (no such file, or not
/// readable), `device_missing` (layers for a GPU, and no GPU), `model_corrupt` (not GGUF,
/// truncated, tensors missing), `model_unsupported` (an architecture that llama.cpp doesn't know),
/// `model_load_cancelled` (`progress` said so). Any thread.
expected<model_ptr> open(const std::string& path, const open_options& options);

/// A digest of what is in the file: its size, its beginning (metadata and tensor table) and samples
/// of its weights. Two fine-tunes of a model differ, two copies of a file don't. Errors:
/// `model_missing`.
expected<std::uint64_t> digest(const std::string& path);

/// Starts llama.cpp once per process and sends its log to spdlog: errors and warnings at debug
/// level, since whoever called says what they mean, the rest at trace.
void start_backend();

/// The last error that llama.cpp logged on this thread since the last call; empty: none.
std::string take_last_error();

}  // namespace troupe::gguf
