// Loading: the model, its context, and what must be measured on it.

#include "gpu/engine/llama/batch_storage.hpp"
#include "gpu/engine/llama/device_class.hpp"
#include "gpu/engine/llama/kv_format.hpp"
#include "gpu/engine/llama/llama_runner.hpp"

#include <fmt/format.h>
#include <llama.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

namespace troupe::engine {
namespace {

/// Of a metadata value; longer ones are cut.
constexpr std::size_t meta_value_bytes_max = 256;

std::string meta(const llama_model* model, const char* key) {
  std::array<char, meta_value_bytes_max> value{};
  const auto size = llama_model_meta_val_str(model, key, value.data(), value.size());
  return size < 0 ? std::string() : std::string(value.data());
}

/// Why ranges of a model's KV cannot be taken apart; empty: they can.
std::string no_ranges_reason(const llama_model* model) {
  if (llama_model_is_recurrent(model))
    return "the model is recurrent: its state is of the whole sequence, not of single positions";
  if (llama_model_is_hybrid(model))
    return "the model is a hybrid: part of its state is of the whole sequence, not of single "
           "positions";
  const auto rope = llama_model_rope_type(model);
  if (rope == LLAMA_ROPE_TYPE_MROPE || rope == LLAMA_ROPE_TYPE_IMROPE ||
      rope == LLAMA_ROPE_TYPE_VISION)
    return "the model has positions of several dimensions (M-RoPE), which a range of tokens "
           "doesn't describe";
  return {};
}

expected<void> check_kind(const llama_model* model, const llama_options& options) {
  if (!llama_model_has_decoder(model) || llama_model_has_encoder(model) ||
      llama_model_is_diffusion(model)) {
    return error{"model_unsupported",
                 fmt::format("the model {} does not generate text token by token (architecture "
                             "{}); use a decoder-only model",
                             options.path, meta(model, "general.architecture"))};
  }
  const auto trained = llama_model_n_ctx_train(model);
  if (trained > 0 && options.context_tokens > static_cast<position>(trained)) {
    return error{"context_too_long",
                 fmt::format("a context of {} tokens is asked for, but the model {} was trained "
                             "for {}; lower `context` of the model in the cluster file",
                             options.context_tokens, options.path, trained)};
  }
  return ok;
}

slot_id slots_with_spares(const llama_model* model, const llama_options& options) {
  return std::min(options.slots + options.spare_slots,
                  llama_slots_max(llama_model_n_swa(model) > 0));
}

std::uint64_t layout_digest(std::uint64_t file, const llama_model* model,
                            const llama_context_params& params) {
  const std::array<std::uint64_t, 8> parts{
      file,
      kv_format_version,
      LLAMA_STATE_SEQ_VERSION,
      static_cast<std::uint64_t>(params.type_k),
      static_cast<std::uint64_t>(params.type_v),
      static_cast<std::uint64_t>(params.flash_attn_type),  // V in rows or in columns
      static_cast<std::uint64_t>(llama_model_n_layer(model)),
      static_cast<std::uint64_t>(llama_model_n_swa(model))};
  return XXH3_64bits(parts.data(), sizeof(parts));
}

}  // namespace

llama_runner::llama_runner(gguf::model_ptr model, context_ptr context, const llama_options& options)
    : model_(std::move(model)), context_(std::move(context)),
      memory_(llama_get_memory(context_.get())), slots_(slots_with_spares(model_.get(), options)),
      cells_(llama_n_ctx(context_.get())),
      batch_(std::make_unique<batch_storage>(options.step_tokens)) {
  window_ = static_cast<std::uint32_t>(std::max(llama_model_n_swa(model_.get()), 0));
  shadows_ = window_ > 0;
  sequences_ = static_cast<slot_id>(llama_n_seq_max(context_.get()));
  const auto* vocab = llama_model_get_vocab(model_.get());
  info_.name = options.name.empty() ? meta(model_.get(), "general.name") : options.name;
  info_.context_tokens = options.context_tokens;
  if (info_.context_tokens == 0)
    info_.context_tokens = static_cast<position>(
        std::max(llama_model_n_ctx_train(model_.get()), 0));
  info_.vocabulary = static_cast<std::uint32_t>(llama_vocab_n_tokens(vocab));
  info_.no_ranges_reason = no_ranges_reason(model_.get());
  info_.ranges = info_.no_ranges_reason.empty();
  info_.add_bos = llama_vocab_get_add_bos(vocab);
  for (token_id t = 0; t < static_cast<token_id>(info_.vocabulary); ++t)
    if (llama_vocab_is_eog(vocab, t)) info_.end_tokens.push_back(t);
  llama_set_abort_callback(context_.get(), &llama_runner::on_node, this);
}

expected<std::unique_ptr<llama_runner>> llama_runner::load(const llama_options& options) {
  if (options.step_tokens == 0 || options.cells == 0 || options.slots <= 0)
    return error{"invalid_options",
                 "an engine needs at least one slot, one cell and one token per step"};
  gguf::open_options how;
  how.gpu_layers = options.gpu_layers;
  how.progress = options.progress;
  auto model = gguf::open(options.path, how);
  if (!model) return model.error();
  auto file = gguf::digest(options.path);
  if (!file) return file.error();
  if (auto fits = check_kind(model->get(), options); !fits) return fits.error();

  const bool window = llama_model_n_swa(model->get()) > 0;
  if (options.slots > llama_slots_max(window)) {
    return error{
        "too_many_slots",
        fmt::format("{} sequences (`slots` and `cached_prefixes` of the pool) are asked for; with "
                    "the model {}{} there can be at most {}",
                    options.slots, options.path,
                    window ? ", which has a sliding window and needs each twice," : "",
                    llama_slots_max(window))};
  }
  const auto slots = slots_with_spares(model->get(), options);
  auto params = llama_context_default_params();
  params.n_ctx = options.cells;
  params.n_batch = options.step_tokens;
  params.n_ubatch = options.step_tokens;  // one graph per pass: an abort leaves nothing half done
  params.n_seq_max = static_cast<std::uint32_t>(window ? 2 * slots : slots) + 1;
  params.n_outputs_max = params.n_seq_max;
  const auto threads = static_cast<std::int32_t>(
      options.threads > 0 ? options.threads : std::max(std::thread::hardware_concurrency(), 1U));
  params.n_threads = threads;
  params.n_threads_batch = threads;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
  params.swa_full = true;
  params.kv_unified = true;
  params.no_perf = true;
  gguf::take_last_error();
  context_ptr context(llama_init_from_model(model->get(), params));
  if (!context) {
    return error{"out_of_memory",
                 fmt::format("no context of {} KV cells could be made for {} ({}); lower "
                             "`kv_tokens` of the pool, or give the engine more memory",
                             options.cells, options.path, gguf::take_last_error())};
  }
  std::unique_ptr<llama_runner> runner(
      new llama_runner(std::move(*model), std::move(context), options));
  runner->info_.device_class = device_class(options.gpu_layers, threads);
  runner->ticks_inside_ = options.gpu_layers == 0;
  runner->info_.kv_layout = layout_digest(*file, runner->model_.get(), params);
  if (auto measured = runner->calibrate(); !measured) return measured.error();
  return runner;
}

/// Computes two tokens and looks at the sizes of llama.cpp's states: what a cell costs in them. It
/// also warms up, so that the first request doesn't pay for it.
expected<void> llama_runner::calibrate() {
  auto* context = context_.get();
  state_empty_bytes_ = llama_state_get_size(context);
  // The last ids of a vocabulary are ordinary words or unused; which doesn't matter.
  const auto token = static_cast<token_id>(info_.vocabulary) - 1;
  const std::array<batch_token, 2> batch{batch_token{0, token, 0, false},
                                         batch_token{0, token, 1, true}};
  const auto computed = batch_->capacity() >= 2
                            ? forward(batch)
                            : (forward(std::span(batch).first(1)) == forward_status::done
                                   ? forward(std::span(batch).last(1))
                                   : forward_status::failed);
  if (computed != forward_status::done) {
    return error{"model_failed", fmt::format("the model {} could not compute its first tokens ({})",
                                             info_.name, gguf::take_last_error())};
  }
  if (info_.ranges) find_ranges();
  for (slot_id s = 0; s < sequences_; ++s) llama_memory_seq_rm(memory_, s, -1, -1);
  removed_ = true;
  return ok;
}

void llama_runner::find_ranges() {
  auto* context = context_.get();
  const std::size_t holders = shadows_ ? 3 : 2;  // of each cell, when scratch has it too
  const auto before = llama_state_get_size(context);
  llama_memory_seq_cp(memory_, 0, scratch(), 0, 2);
  const auto two = llama_state_get_size(context);
  const auto blob_two = llama_state_seq_get_size(context, scratch());
  bool fine = llama_memory_seq_pos_max(memory_, scratch()) == 1;
  fine = llama_memory_seq_rm(memory_, scratch(), 1, -1) && fine;
  const auto blob_one = llama_state_seq_get_size(context, scratch());
  kv_remove(0, 1, 2);
  const auto one = llama_state_get_size(context);
  fine = fine && llama_memory_seq_pos_max(memory_, 0) == 0 &&
         llama_memory_seq_pos_max(memory_, scratch()) == 0 && two > before && two > one &&
         blob_two > blob_one;
  if (!fine) {
    info_.ranges = false;
    info_.no_ranges_reason = "llama.cpp cannot copy and remove single positions of this model's "
                             "state";
    return;
  }
  state_member_bytes_ = (two - before) / 2;
  state_cell_bytes_ = two - one - holders * state_member_bytes_;
  state_fixed_bytes_ = one - state_cell_bytes_ - holders * state_member_bytes_;
  blob_token_bytes_ = blob_two - blob_one;
  blob_fixed_bytes_ = blob_one - blob_token_bytes_;
  info_.kv_bytes_per_token = static_cast<std::uint32_t>(blob_token_bytes_);
}

}  // namespace troupe::engine
