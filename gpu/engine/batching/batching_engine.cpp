#include "gpu/engine/batching/batching_engine.hpp"

#include <algorithm>
#include <utility>
#include <variant>

namespace troupe::engine {
namespace {

/// While a piece waits for a buffer of the transport: nobody may tell the engine when one comes
/// back.
constexpr std::chrono::milliseconds buffer_retry{1};

position largest_piece(const model_runner& runner, std::size_t bytes_max) {
  position fits = 0;
  position too_many = runner.cells() + 1;
  while (too_many - fits > 1) {
    const auto middle = fits + (too_many - fits) / 2;
    (runner.kv_export_bytes(middle) <= bytes_max ? fits : too_many) = middle;
  }
  return fits;
}

}  // namespace

batching_engine::batching_engine(std::unique_ptr<model_runner> runner,
                                 std::shared_ptr<const text::text_model> text,
                                 const batching_limits& limits, engine_options options)
    : runner_(std::move(runner)), text_(std::move(text)), limits_(limits),
      options_(std::move(options)),
      piece_tokens_max_(largest_piece(*runner_, options_.piece_bytes_max)), memory_(*runner_),
      pool_(std::min(limits.kv_tokens + limits.probe_cells, runner_->cells()), runner_->slots(),
            memory_),
      probe_cells_(std::min(limits.probe_cells, pool_.total() / 2)),
      cache_(limits.prefix_reuse ? limits.cached_prefixes : 0), queue_(*runner_) {
  if (!runner_->info().ranges) limits_.prefix_reuse = false;
  if (!options_.now) options_.now = [] { return std::chrono::steady_clock::now(); };
}

step_report batching_engine::step(event_sink& sink) {
  sink_ = &sink;
  report_ = {};
  counters_.stepping = true;
  for (auto& command : queue_.take_all()) {
    report_.worked = true;
    std::visit([this](auto& c) { apply(c); }, command);
  }
  sweep();
  deliver_pieces();
  take_arrivals();
  if (report_.exported_bytes + report_.imported_bytes > 0) sink_->on_work({});
  sweep();
  admit_waiting();
  auto p = compose();
  // Whoever had the turn could not use it.
  if (p.tokens.empty()) p = compose();
  if (!p.tokens.empty()) {
    run(p);
    report_.worked = true;
  } else {
    note_idle_step();
  }
  sweep();
  if (report_.exported_bytes + report_.imported_bytes > 0 || !arrivals_.empty())
    report_.worked = true;
  report_prefixes();
  publish();
  counters_.stepping = false;
  sink_ = nullptr;
  return report_;
}

void batching_engine::wait(std::chrono::milliseconds at_most) {
  sampling_ = {};  // the next pass is none of those that were sampled for
  queue_.wait(lacks_buffers_ ? std::min(at_most, buffer_retry) : at_most);
}

std::unique_ptr<engine> make_batching_engine(std::unique_ptr<model_runner> runner,
                                             std::shared_ptr<const text::text_model> text,
                                             const batching_limits& limits,
                                             engine_options options) {
  return std::make_unique<batching_engine>(std::move(runner), std::move(text), limits,
                                           std::move(options));
}

}  // namespace troupe::engine
