#include "actors/crash/step_board.hpp"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace troupe::crash {

namespace {

constexpr std::uint32_t board_magic = 0x54'53'42'31;
constexpr std::uint32_t board_version = 2;

/// What this thread does now.
thread_local board_part this_part = board_part::unknown;

// The layout is read by a process of the same build, but a version costs nothing.

struct named_key {
  std::uint64_t high, low;
  std::uint32_t attempt;
  std::uint16_t prompt, unused;
};

/// A list of keys. `sequence` is odd while it is being written.
template <std::size_t Max>
struct key_list {
  std::uint64_t sequence, checksum;
  std::uint32_t count, total;
  named_key keys[Max];
};

struct layout {
  std::uint32_t magic, version;
  std::uint32_t faulting, unused;  ///< a `board_part`: what the thread did that crashed
  key_list<board_keys_max> step;
  key_list<board_preparing_max> preparing;
};

template <std::size_t Max>
std::uint64_t checksum_of(const key_list<Max>& list) {
  // Padding is written, too (`unused`), so the bytes are a function of the keys.
  return XXH3_64bits_withSeed(list.keys, list.count * sizeof(named_key),
                              std::uint64_t{list.count} << 32U | list.total);
}

template <std::size_t Max>
void write(key_list<Max>& list, std::span<const job_key> keys) {
  const auto sequence = list.sequence;
  list.sequence = sequence + 1;
  // A crash is no other thread: it is enough that the compiler keeps the order.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  list.count = static_cast<std::uint32_t>(std::min(keys.size(), Max));
  list.total = static_cast<std::uint32_t>(keys.size());
  for (std::size_t i = 0; i < list.count; ++i)
    list.keys[i] = {keys[i].id.high, keys[i].id.low, keys[i].attempt, keys[i].prompt, 0};
  list.checksum = checksum_of(list);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  list.sequence = sequence + 2;
}

template <std::size_t Max>
void read(const key_list<Max>& list, board_reading& out) {
  if (list.sequence % 2 != 0 || list.count > Max || list.total < list.count) return;
  if (list.checksum != checksum_of(list)) return;
  for (std::size_t i = 0; i < list.count; ++i) {
    const auto& k = list.keys[i];
    out.keys.push_back({{k.high, k.low}, k.prompt, k.attempt});
  }
  out.total += list.total;
}

layout& in(std::span<std::byte> memory) { return *reinterpret_cast<layout*>(memory.data()); }

}  // namespace

std::size_t board_bytes() { return sizeof(layout); }

board_writer::board_writer(std::span<std::byte> memory) : memory_(memory) {
  auto& board = in(memory_);
  std::memset(&board, 0, sizeof board);
  board.magic = board_magic;
  board.version = board_version;
  write(board.step, {});
  write_preparing();
}

void board_writer::at_hand(std::span<const job_key> keys) {
  this_part = board_part::step;
  write(in(memory_).step, keys);
}

void board_writer::preparing(const job_key& key) {
  this_part = board_part::preparing;
  std::lock_guard lock{mutex_};
  preparing_.push_back(key);
  write_preparing();
}

void board_writer::prepared(const job_key& key) {
  this_part = board_part::unknown;
  std::lock_guard lock{mutex_};
  if (auto i = std::find(preparing_.begin(), preparing_.end(), key); i != preparing_.end())
    preparing_.erase(i);
  write_preparing();
}

void board_writer::mark_fault() noexcept {
  in(memory_).faulting = static_cast<std::uint32_t>(this_part);
}

void board_writer::write_preparing() { write(in(memory_).preparing, preparing_); }

plain_board::plain_board()
    : memory_((sizeof(layout) + 7) / 8),
      writer_({reinterpret_cast<std::byte*>(memory_.data()), sizeof(layout)}) {}

std::optional<board_reading> plain_board::read() const {
  return read_board({reinterpret_cast<const std::byte*>(memory_.data()), sizeof(layout)});
}

std::optional<board_reading> read_board(std::span<const std::byte> memory) {
  if (memory.size() != sizeof(layout)) return std::nullopt;
  auto board = std::make_unique<layout>();
  std::memcpy(board.get(), memory.data(), sizeof(layout));
  if (board->magic != board_magic || board->version != board_version) return std::nullopt;
  board_reading result;
  const auto faulting = static_cast<board_part>(board->faulting);
  if (faulting != board_part::preparing) read(board->step, result);
  if (faulting != board_part::step) read(board->preparing, result);
  if (result.keys.empty()) return std::nullopt;
  return result;
}

}  // namespace troupe::crash
