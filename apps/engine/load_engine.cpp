#include "apps/engine/load_engine.hpp"

#include "config/calibration.hpp"
#include "config/problem.hpp"
#include "config/values.hpp"
#include "gpu/engine/llama/device_class.hpp"
#include "gpu/engine/llama/llama_runner.hpp"
#include "gpu/engine/make_engine.hpp"
#include "gpu/engine/simulated/simulated_runner.hpp"
#include "gpu/text/byte_text_model.hpp"
#include "gpu/transfer/ucx/ucx_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

namespace troupe::apps {

namespace {

/// Sequences beside those that run and those that are cached: further choices of requests with `n`,
/// one to move prefixes through, and one for a probe.
constexpr engine::slot_id spare_sequences = 8;
/// Buffers for KV pieces, however large a piece may be: one is sent while the next one is written.
constexpr std::size_t piece_buffers_min = 2;

/// Of the whole, when the vocabulary is read, and when the weights are. Reading the vocabulary
/// tells nothing in between: it takes seconds at most.
constexpr float vocabulary_done = 0.05F;
constexpr float weights_done = 0.95F;

engine::slot_id sequences(const config::pool& pool) {
  return static_cast<engine::slot_id>(pool.slots + pool.cached_prefixes);
}

/// Where the cluster file says how many sequences a pool has.
std::string where_sequences(const config::cluster& cluster, const config::pool& pool) {
  const auto at = fmt::format("pool[{}].", &pool - cluster.pools.data());
  for (const auto* key : {"slots", "cached_prefixes"})
    if (auto i = cluster.origins.find(at + key); i != cluster.origins.end())
      return config::to_string(i->second);
  return config::to_string(pool.where);
}

/// Those that the engine is bound to; else cores of the machine, shared out among the engines on
/// it. Hosts of a cluster on loopback stand on one machine.
std::uint32_t threads_of(const config::cluster& cluster, const config::pool& pool) {
  if (pool.threads != 0) return pool.threads;
  if (const auto own = config::cpus_of(pool, 0); !own.empty())
    return static_cast<std::uint32_t>(own.size());
  std::size_t engines = 0;
  const auto* here = cluster.find_host(pool.hosts.front());
  for (const auto& h : cluster.hosts)
    if (h.name == here->name ||
        (config::is_loopback(h.address) && config::is_loopback(here->address)))
      engines += config::engines_on(cluster, h.name).size();
  const auto cores = std::max(1U, std::thread::hardware_concurrency());
  return std::max<std::uint32_t>(
      1, cores / static_cast<std::uint32_t>(std::max<std::size_t>(1, engines)));
}

expected<std::unique_ptr<engine::model_runner>> make_simulated(const config::model& model,
                                                               const config::pool& pool,
                                                               const text::text_model& text) {
  engine::simulated_options o;
  o.model = model.name;
  o.context_tokens = model.context_tokens;
  o.slots = sequences(pool) + spare_sequences;
  o.cells = pool.kv_tokens + engine::probe_cells_needed;
  o.vocabulary = text.vocabulary();
  if (model.path.empty())
    o.end_tokens = {text::byte_token_turn_end, text::byte_token_end};
  else
    o.output_tokens = engine::readable_tokens(text);
  o.prefill_tokens_per_second = pool.sim.prefill_tokens_per_second;
  o.decode_step_us = pool.sim.decode_step_us;
  o.decode_us_per_stream = pool.sim.decode_us_per_stream;
  if (!pool.sim.fault.empty()) {
    auto fault = engine::parse_fault(pool.sim.fault);
    if (!fault) return std::move(fault).error();
    o.fault = *fault;
  }
  if (!pool.sim.crash_on.empty()) {
    auto poison = text.tokenize(pool.sim.crash_on, false, false);
    if (!poison) return std::move(poison).error();
    o.crash_on = *std::move(poison);
  }
  o.fault_probability_per_step = pool.sim.fault_probability_per_step;
  o.seed = pool.sim.seed;
  return std::unique_ptr<engine::model_runner>{
      std::make_unique<engine::simulated_runner>(std::move(o))};
}

expected<std::unique_ptr<engine::model_runner>> load_llama(
    const config::cluster& cluster, const config::model& model, const config::pool& pool,
    const std::function<bool(float)>& progress) {
  engine::llama_options o;
  o.path = model.path;
  o.name = model.name;
  o.context_tokens = model.context_tokens;
  o.cells = pool.kv_tokens + engine::probe_cells_needed;
  o.slots = sequences(pool);
  o.spare_slots = spare_sequences;
  o.step_tokens = pool.step_tokens;
  o.threads = threads_of(cluster, pool);
  o.gpu_layers = static_cast<std::int32_t>(pool.gpu_layers);
  o.progress = progress;
  auto runner = engine::llama_runner::load(o);
  if (!runner) {
    auto why = std::move(runner).error();
    if (why.code == "too_many_slots")
      why.message = fmt::format("{}: pool \"{}\": {}", where_sequences(cluster, pool), pool.name,
                                why.message);
    return why;
  }
  return std::unique_ptr<engine::model_runner>{*std::move(runner)};
}

/// What the text model takes: empty, a built-in name, or Jinja source out of the model's file.
expected<std::string> template_of(const config::model& model) {
  if (model.chat_template_file.empty()) return model.chat_template;
  std::ifstream in{model.chat_template_file, std::ios::binary};
  std::string source{std::istreambuf_iterator<char>{in}, {}};
  if (!in || source.empty())
    return error{"model_missing",
                 fmt::format("chat_template_file {} of model {} cannot be read, or is empty",
                             model.chat_template_file, model.name)};
  return source;
}

/// Before the weights are read, which may take long: whether the pool's costs are those of what
/// this engine will compute on.
expected<void> check_costs(const config::cluster& cluster, const config::pool& pool) {
  if (pool.costs.empty()) return ok;
  const auto costs = config::load_calibration(pool.costs);
  if (!costs) return error{"bad_costs", config::to_string(costs.problems.front())};
  const auto here = pool.engine == config::engine_kind::simulated
                        ? std::string{engine::simulated_device_class}
                        : engine::device_class(
                              static_cast<std::int32_t>(pool.gpu_layers),
                              static_cast<std::int32_t>(threads_of(cluster, pool)));
  const auto why = config::wrong_hardware(cluster, pool, *costs.value, here);
  if (!why.empty()) return error{"wrong_hardware", why};
  return ok;
}

/// What is simulated is known without trying, and trying would use up faults that are drawn.
engine::engine_speed speed_of(const config::pool& pool, engine::model_runner& runner) {
  if (pool.engine != config::engine_kind::simulated)
    return engine::measure_speed(runner, pool.step_tokens);
  const auto step_us = pool.sim.decode_step_us + pool.sim.decode_us_per_stream;
  return {pool.sim.prefill_tokens_per_second, step_us > 0 ? 1e6 / step_us : 0};
}

error given_up(const config::model& model) {
  return {"model_load_cancelled", "loading model " + model.name + " was given up"};
}

}  // namespace

expected<loaded_engine> load_engine(const config::cluster& cluster, const config::pool& pool,
                                    const std::function<bool(float)>& progress) {
  const auto& model = *cluster.find_model(pool.model);
  if (auto fits = check_costs(cluster, pool); !fits) return fits.error();
  loaded_engine result;
  if (model.path.empty()) {
    result.text = text::make_byte_text_model(model.context_tokens);
  } else {
    const auto chat_template = template_of(model);
    if (!chat_template) return chat_template.error();
    auto text = text::load_gguf_text_model(model.path, *chat_template, model.context_tokens);
    if (!text) return std::move(text).error();
    result.text = *std::move(text);
  }
  if (!progress(vocabulary_done)) return given_up(model);
  const auto weights = [&](float done) {
    return progress(vocabulary_done + (weights_done - vocabulary_done) * done);
  };
  auto runner = pool.engine == config::engine_kind::simulated
                    ? make_simulated(model, pool, *result.text)
                    : load_llama(cluster, model, pool, weights);
  if (!runner) return std::move(runner).error();
  if (!progress(weights_done)) return given_up(model);
  const auto& info = (*runner)->info();
  if (!info.ranges && pool.role != config::pool_role::both)
    return error{"model_unsupported",
                 fmt::format("model {} can only be served by a pool of role \"both\": {}",
                             model.name, info.no_ranges_reason)};
  engine::batching_limits limits;
  limits.slots = pool.slots;
  limits.kv_tokens = std::min(pool.kv_tokens, (*runner)->cells() - engine::probe_cells_needed);
  limits.probe_cells = engine::probe_cells_needed;
  limits.step_tokens = pool.step_tokens;
  limits.cached_prefixes = pool.cached_prefixes;
  limits.prefix_reuse = pool.prefix_reuse;
  engine::engine_options options;
  options.piece_bytes_max = cluster.transfer.piece_bytes_max;
  result.kv_tokens = limits.kv_tokens;
  result.speed = speed_of(pool, **runner);
  result.engine = engine::make_batching_engine(*std::move(runner), result.text, limits,
                                               std::move(options));
  return result;
}

expected<std::shared_ptr<transfer::hand_over_service>> start_hand_overs(
    const config::cluster& cluster, const config::host& here, const engine::model_info& model) {
  if (cluster.transfer.kind != "ucx")
    return error{"transport_unavailable", "transfer.kind \"" + cluster.transfer.kind +
                                              "\" does not reach other processes; use \"ucx\""};
  transfer::hand_over_service::options o;
  o.layout = model.kv_layout;
  o.piece_bytes = cluster.transfer.piece_bytes_max;
  o.buffers = std::max<std::size_t>(piece_buffers_min, cluster.transfer.buffer_bytes /
                                                           cluster.transfer.piece_bytes_max);
  o.timeout = cluster.health.transfer_timeout;
  transfer::ucx::options ucx;
  ucx.local_tls = cluster.transfer.tls;
  ucx.network_tls = cluster.transfer.tls;
  // UCX finds the device of an accepted connection by its address, and the loopback device has but
  // one: hosts on 127.0.0.2 and the like are this machine, too.
  ucx.listen_address = config::is_loopback(here.address) &&
                               here.address.find('.') != std::string::npos
                           ? "127.0.0.1"
                           : here.address;
  // UCX opens a port on each device that it may use: none of them is to be seen from elsewhere.
  if (config::is_loopback(here.address) && std::getenv("UCX_NET_DEVICES") == nullptr)
    ucx.net_devices = "lo";
  auto started = transfer::hand_over_service::start(
      o, [&](transfer::events& sink) { return transfer::ucx::make_backend(ucx, sink); });
  if (!started) return std::move(started).error();
  return std::shared_ptr<transfer::hand_over_service>{*std::move(started)};
}

}  // namespace troupe::apps
