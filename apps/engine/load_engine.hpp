#pragma once

#include "config/cluster.hpp"
#include "gpu/engine/engine.hpp"
#include "gpu/engine/speed.hpp"
#include "gpu/text/text_model.hpp"
#include "gpu/transfer/hand_over_service.hpp"
#include "messages/base/expected.hpp"

#include <cstdint>
#include <functional>
#include <memory>

namespace troupe::apps {

/// What an engine process serves with.
struct loaded_engine {
  std::unique_ptr<engine::engine> engine;
  std::shared_ptr<const text::text_model> text;
  std::uint32_t kv_tokens = 0;  ///< budget as it really is
  engine::engine_speed speed;
};

/// Loads the model of a pool, real or simulated. Takes as long as reading the weights takes;
/// `progress` is told how far it is (0 to 1, never less than before); false gives up. Errors: those
/// of `load_gguf_text_model` and `llama_runner::load`, `model_load_cancelled`, `model_unsupported`
/// for a model whose KV cannot be handed over in a pool apart, and `wrong_hardware` or `bad_costs`
/// for a pool whose costs were calibrated elsewhere or cannot be read.
expected<loaded_engine> load_engine(const config::cluster& cluster, const config::pool& pool,
                                    const std::function<bool(float)>& progress);

/// The worker's side of KV hand-overs. Errors: those of the transport, and `transport_unavailable`
/// for one that does not reach other processes.
expected<std::shared_ptr<transfer::hand_over_service>> start_hand_overs(
    const config::cluster& cluster, const config::host& here, const engine::model_info& model);

}  // namespace troupe::apps
