#pragma once

#include "gpu/engine/engine.hpp"
#include "gpu/engine/runner.hpp"
#include "gpu/text/text_model.hpp"

#include <chrono>
#include <functional>
#include <memory>

namespace troupe::engine {

/// What isn't in the cluster file's pool section.
struct engine_options {
  /// Pieces of exported KV are at most this large, so that they fit the transport's buffers.
  std::size_t piece_bytes_max = 16U << 20U;
  /// KV of pre-empted jobs whose prompt came from elsewhere waits in ordinary memory; beyond this
  /// such a job fails with `kv_exhausted`, retryable.
  std::size_t parked_kv_bytes_max = 256U << 20U;
  /// For durations in reports. Empty: std::chrono::steady_clock::now.
  std::function<std::chrono::steady_clock::time_point()> now;
};

/// The engine of troupe: continuous batching, KV ownership and sampling over any runner. `text`
/// must be of the same model.
std::unique_ptr<engine> make_batching_engine(std::unique_ptr<model_runner> runner,
                                             std::shared_ptr<const text::text_model> text,
                                             const batching_limits& limits,
                                             engine_options options = {});

}  // namespace troupe::engine
