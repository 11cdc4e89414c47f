#include "gpu/engine/simulated/simulated_runner.hpp"

#include "gpu/engine/philox.hpp"
#include "gpu/engine/simulated/simulated_kv.hpp"
#include "gpu/text/utf8.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <thread>

namespace troupe::engine {
namespace {

using simulated::extend_hash;
using simulated::mix;
using simulated::token_kv;

// By frequency in English, so that answers look like text and compress like it.
constexpr std::string_view letters = "eeeeeeeeeeeettttttttaaaaaaaaooooooooiiiiiiinnnnnnnsssssshhhhh"
                                     "hrrrrrrddddlllluuucccmmmwwffggyyppbvk                  ";

// Logits: the chosen token far above the other readable ones, those above the rest, so that
// sampling at temperature 1 mostly follows the greedy answer.
constexpr float favourite_logit = 8;
constexpr float readable_spread = 4;
constexpr float other_logit = -12;

float noise(std::uint64_t hash, std::uint64_t id) {
  return static_cast<float>(mix(hash ^ (id * 0x9E3779B97F4A7C15ULL)) >> 40U) * 0x1.0p-24F;
}

}  // namespace

expected<simulated_fault> parse_fault(const std::string& name) {
  if (name.empty()) return simulated_fault::none;
  if (name == "slow") return simulated_fault::slow;
  if (name == "hang") return simulated_fault::hang;
  if (name == "crash") return simulated_fault::crash;
  if (name == "garbage") return simulated_fault::garbage;
  return error{
      "unknown_fault",
      fmt::format(
          "\"{}\" is no fault of a simulated engine; there are slow, hang, crash and garbage",
          name),
      {}};
}

simulated_runner::simulated_runner(simulated_options options)
    : options_(std::move(options)), cells_(options_.cells),
      sequences_(static_cast<std::size_t>(options_.slots)) {
  options_.kv_bytes_per_token = std::max(options_.kv_bytes_per_token,
                                         simulated::token_kv_bytes_min);
  if (options_.output_tokens.empty())
    for (const char c : letters) options_.output_tokens.push_back(static_cast<unsigned char>(c));
  if (!options_.now) options_.now = [] { return std::chrono::steady_clock::now(); };
  if (!options_.sleep)
    options_.sleep = [](std::chrono::nanoseconds time) { std::this_thread::sleep_for(time); };
  if (!options_.crash) options_.crash = [] { std::abort(); };
  for (auto c = options_.cells; c > 0; --c) free_.push_back(c - 1);
  info_.name = options_.model;
  info_.context_tokens = options_.context_tokens;
  info_.vocabulary = options_.vocabulary;
  info_.kv_bytes_per_token = options_.kv_bytes_per_token;
  info_.kv_layout = options_.kv_bytes_per_token;
  for (const char c : options_.model)
    info_.kv_layout = mix(info_.kv_layout ^ static_cast<unsigned char>(c));
  info_.end_tokens = options_.end_tokens;
  info_.device_class = simulated_device_class;
  info_.ranges = options_.ranges;
  if (!info_.ranges) info_.no_ranges_reason = "the simulation says so";
}

// -- computing ----------------------------------------------------------------

forward_status simulated_runner::forward(std::span<const batch_token> batch) {
  batch_hashes_.clear();
  last_error_.clear();
  if (batch.size() > free_.size()) return forward_status::no_cells;
  const auto fault = next_fault();
  const auto decoding = static_cast<double>(std::count_if(
      batch.begin(), batch.end(), [](const batch_token& t) { return t.want_logits; }));
  double us = decoding > 0 ? options_.decode_step_us + options_.decode_us_per_stream * decoding : 0;
  if (options_.prefill_tokens_per_second > 0)
    us += 1e6 * (static_cast<double>(batch.size()) - decoding) / options_.prefill_tokens_per_second;
  if (fault == simulated_fault::slow) us *= options_.slow_factor;
  if (fault == simulated_fault::crash) options_.crash();
  while (fault == simulated_fault::hang) options_.sleep(options_.slice);
  garbage_ = fault == simulated_fault::garbage;
  if (!spend(std::chrono::nanoseconds(static_cast<std::int64_t>(us * 1e3))))
    return forward_status::aborted;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (store(batch[i])) continue;
    for (const auto& t : batch.first(i)) kv_remove(t.slot, t.pos, t.pos + 1);
    batch_hashes_.clear();
    return forward_status::failed;
  }
  return forward_status::done;
}

/// Computes one token on top of what is there; refuses what a real model would turn into nonsense.
bool simulated_runner::store(const batch_token& t) {
  auto& s = sequences_[static_cast<std::size_t>(t.slot)];
  if (t.pos < s.cells.size() && s.cells[t.pos] != none) {
    last_error_ = fmt::format("position {} of slot {} was computed already", t.pos, t.slot);
    return false;
  }
  if (!verify(s, t.pos)) {
    last_error_ = fmt::format(
        "the KV before position {} of slot {} is missing or of another prefix", t.pos, t.slot);
    return false;
  }
  const auto before = t.pos == 0 ? 0 : cells_[s.cells[t.pos - 1]].hash;
  if (s.cells.size() <= t.pos) s.cells.resize(t.pos + 1, none);
  s.cells[t.pos] = take_cell(before, extend_hash(before, t.token), t.token);
  if (is_poison(s)) options_.crash();
  batch_hashes_.push_back(cells_[s.cells[t.pos]].hash);
  return true;
}

bool simulated_runner::verify(sequence& s, position end) {
  if (end > s.cells.size()) return false;
  for (; s.verified < end; ++s.verified) {
    const auto here = s.cells[s.verified];
    if (here == none) return false;
    const auto before = s.verified == 0 ? 0 : cells_[s.cells[s.verified - 1]].hash;
    if (cells_[here].before != before) return false;
  }
  return true;
}

/// Whether the sequence now ends with what must not be computed.
bool simulated_runner::is_poison(const sequence& s) const {
  const auto& poison = options_.crash_on;
  if (poison.empty() || s.cells.size() < poison.size()) return false;
  return std::equal(
      poison.rbegin(), poison.rend(), s.cells.rbegin(),
      [this](token_id token, cell_index c) { return c != none && cells_[c].token == token; });
}

/// False: aborted.
bool simulated_runner::spend(std::chrono::nanoseconds time) {
  ticks_.fetch_add(1, std::memory_order_relaxed);
  // Towards a point in time, so that what a sleep takes too long doesn't add up.
  const auto end = time.count() > 0 ? options_.now() + time
                                    : std::chrono::steady_clock::time_point{};
  while (time.count() > 0) {
    if (abort_.exchange(false)) return false;
    options_.sleep(std::min<std::chrono::nanoseconds>(time, options_.slice));
    ticks_.fetch_add(1, std::memory_order_relaxed);
    time = end - options_.now();
  }
  return !abort_.exchange(false);
}

simulated_fault simulated_runner::next_fault() {
  ++passes_;
  if (options_.choose_fault) return options_.choose_fault();
  if (options_.fault == simulated_fault::none || options_.fault_probability_per_step <= 0)
    return simulated_fault::none;
  const auto random = philox4x32(
      {static_cast<std::uint32_t>(passes_), static_cast<std::uint32_t>(passes_ >> 32U), 0, 1},
      {static_cast<std::uint32_t>(options_.seed),
       static_cast<std::uint32_t>(options_.seed >> 32U)});
  return unit_interval(random[0], random[1]) < options_.fault_probability_per_step
             ? options_.fault
             : simulated_fault::none;
}

token_id simulated_runner::token_after(std::uint64_t hash) const {
  const auto random = mix(hash ^ 0x746F6B656EULL);
  if (options_.mean_answer_tokens > 0 && !options_.end_tokens.empty() &&
      mix(random) % options_.mean_answer_tokens == 0)
    return options_.end_tokens.front();
  return options_.output_tokens[random % options_.output_tokens.size()];
}

token_id simulated_runner::shortcut_token(std::size_t batch_index) {
  return garbage_ ? -1 : token_after(batch_hashes_[batch_index]);
}

std::span<const float> simulated_runner::logits(std::size_t batch_index) {
  const auto hash = batch_hashes_[batch_index];
  logits_.resize(options_.vocabulary);
  for (std::size_t id = 0; id < logits_.size(); ++id)
    logits_[id] = garbage_ ? std::numeric_limits<float>::quiet_NaN()
                           : other_logit + noise(hash, id);
  if (!garbage_) {
    for (const auto id : options_.output_tokens)
      logits_[static_cast<std::size_t>(id)] = readable_spread *
                                              noise(hash, static_cast<std::uint64_t>(id));
    logits_[static_cast<std::size_t>(token_after(hash))] = favourite_logit;
  }
  return logits_;
}

// -- KV -----------------------------------------------------------------------

simulated_runner::cell_index simulated_runner::take_cell(std::uint64_t before, std::uint64_t hash,
                                                         token_id token) {
  const auto c = free_.back();
  free_.pop_back();
  cells_[c] = {before, hash, 1, token};
  return c;
}

void simulated_runner::let_go(cell_index c) {
  if (--cells_[c].sequences == 0) free_.push_back(c);
}

void simulated_runner::kv_copy(slot_id from, slot_id to, position begin, position end) {
  const auto& source = sequences_[static_cast<std::size_t>(from)].cells;
  auto& target = sequences_[static_cast<std::size_t>(to)];
  if (!options_.ranges && (begin > 0 || end < source.size())) ++forbidden_moves_;
  if (target.cells.size() < end) target.cells.resize(end, none);
  for (auto p = begin; p < std::min(end, static_cast<position>(source.size())); ++p) {
    if (source[p] == none || target.cells[p] != none) continue;
    target.cells[p] = source[p];
    ++cells_[source[p]].sequences;
  }
  target.verified = std::min(target.verified, begin);
}

void simulated_runner::kv_remove(slot_id slot, position begin, position end) {
  auto& s = sequences_[static_cast<std::size_t>(slot)];
  if (!options_.ranges && (begin > 0 || end < s.cells.size())) ++forbidden_moves_;
  for (auto p = begin; p < std::min(end, static_cast<position>(s.cells.size())); ++p) {
    if (s.cells[p] == none) continue;
    let_go(s.cells[p]);
    s.cells[p] = none;
  }
  while (!s.cells.empty() && s.cells.back() == none) s.cells.pop_back();
  s.verified = std::min(s.verified, begin);
}

std::size_t simulated_runner::kv_export_bytes(position tokens) const {
  return simulated::encoded_bytes(tokens, options_.kv_bytes_per_token);
}

expected<std::size_t> simulated_runner::kv_export(slot_id slot, position begin, position end,
                                                  std::span<std::byte> out) {
  const auto& s = sequences_[static_cast<std::size_t>(slot)];
  const auto refuse = [&](const char* what) {
    return error{"kv_export_failed",
                 fmt::format("KV of positions {} to {} cannot be exported: {}", begin, end, what),
                 {}};
  };
  if (begin >= end || out.size() < kv_export_bytes(end - begin))
    return refuse("the buffer is too small for the range");
  if (end > s.cells.size()) return refuse("not all of it is there");
  std::vector<token_kv> tokens;
  for (auto p = begin; p < end; ++p) {
    if (s.cells[p] == none) return refuse("not all of it is there");
    tokens.push_back({cells_[s.cells[p]].before, cells_[s.cells[p]].hash});
  }
  const auto size = kv_export_bytes(end - begin);
  simulated::encode(tokens, begin, info_.kv_layout, options_.kv_bytes_per_token, out.first(size));
  return size;
}

expected<void> simulated_runner::kv_import(slot_id slot, position begin, position end,
                                           std::span<const std::byte> in) {
  auto tokens = simulated::decode(in, begin, end, info_.kv_layout, options_.kv_bytes_per_token);
  if (!tokens) return tokens.error();
  auto& s = sequences_[static_cast<std::size_t>(slot)];
  const auto refuse = [&](const char* what) {
    return error{"kv_import_failed",
                 fmt::format("KV for positions {} to {} was refused: {}", begin, end, what),
                 {}};
  };
  if (free_.size() < tokens->size()) return refuse("there are too few free cells");
  for (auto p = begin; p < std::min(end, static_cast<position>(s.cells.size())); ++p)
    if (s.cells[p] != none) return refuse("some of it is there already");
  if (s.cells.size() < end) s.cells.resize(end, none);
  for (std::size_t i = 0; i < tokens->size(); ++i)
    s.cells[begin + i] = take_cell((*tokens)[i].before, (*tokens)[i].hash, -1);
  s.verified = std::min(s.verified, begin);
  return ok;
}

runner_truth simulated_runner::truth() {
  runner_truth out;
  out.used_cells = static_cast<std::uint32_t>(cells_.size() - free_.size());
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    const auto& cells = sequences_[i].cells;
    const auto first = std::find_if(cells.begin(), cells.end(),
                                    [](cell_index c) { return c != none; });
    if (first == cells.end()) continue;
    out.slots.push_back({static_cast<slot_id>(i), first - cells.begin(),
                         static_cast<std::int64_t>(cells.size()) - 1});
  }
  return out;
}

std::vector<token_id> readable_tokens(const text::text_model& model) {
  std::vector<token_id> out;
  for (std::uint32_t id = 0; id < model.vocabulary() && out.size() < answer_vocabulary_max; ++id) {
    const auto token = static_cast<token_id>(id);
    const auto piece = model.piece(token);
    const bool printable = std::none_of(piece.begin(), piece.end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x20 || c == 0x7F || c == '<' || c == '>';
    });
    if (!piece.empty() && printable && text::is_valid_utf8(piece) && !model.is_end(token))
      out.push_back(token);
  }
  return out;
}

}  // namespace troupe::engine
