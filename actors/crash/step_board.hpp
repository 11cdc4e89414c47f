#pragma once

#include "messages/job_key.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace troupe::crash {

using msg::job_key;

/// Jobs that are named at most; how many there were in all is always told. More than an engine has
/// slots.
inline constexpr std::size_t board_keys_max = 256;
/// The same, of prompts that are being prepared: more than an engine has threads for it.
inline constexpr std::size_t board_preparing_max = 16;

/// What a thread of the engine does, as far as a crash of it is concerned.
enum class board_part : std::uint32_t { unknown, step, preparing };

/// What was at hand when an engine ended.
struct board_reading {
  std::vector<job_key> keys;
  std::uint32_t total = 0;  ///< at least as many as there are keys
};

/// Where an engine says what it works at, before it does: should it crash, only those are suspects.
/// The seam between an engine and whoever reaps it.
class step_board {
 public:
  virtual ~step_board() = default;
  /// From now on the engine's thread works at these; none: at nobody's job. That thread only.
  virtual void at_hand(std::span<const job_key> keys) = 0;
  /// A prompt is being rendered, tokenised, or its grammar compiled. Any thread.
  virtual void preparing(const job_key& key) = 0;
  virtual void prepared(const job_key& key) = 0;
};

/// The launcher's side of a board.
class board_source {
 public:
  virtual ~board_source() = default;
  /// To be inherited by the engine's process; -1: the engine gets at the board in another way.
  virtual int descriptor() const = 0;
  /// After the engine's end. Empty: nothing was at hand, or what is there cannot be believed.
  virtual std::optional<board_reading> read() const = 0;
};

/// A `preparing` that ends with its scope.
class preparing_mark {
 public:
  preparing_mark(std::shared_ptr<step_board> board, const job_key& key)
      : board_(std::move(board)), key_(key) {
    if (board_) board_->preparing(key_);
  }
  ~preparing_mark() {
    if (board_) board_->prepared(key_);
  }
  preparing_mark(const preparing_mark&) = delete;
  preparing_mark& operator=(const preparing_mark&) = delete;

 private:
  std::shared_ptr<step_board> board_;
  job_key key_;
};

// -- in shared memory ------------------------------------------------------------

/// Bytes of a board's memory.
std::size_t board_bytes();

/// Writes a board into memory of `board_bytes()`, aligned to 8 bytes, which outlives it.
class board_writer : public step_board {
 public:
  explicit board_writer(std::span<std::byte> memory);
  void at_hand(std::span<const job_key> keys) override;
  void preparing(const job_key& key) override;
  void prepared(const job_key& key) override;
  /// This thread is about to end the process: what others do is not why. Async-signal-safe.
  void mark_fault() noexcept;

 private:
  void write_preparing();

  std::span<std::byte> memory_;
  std::mutex mutex_;
  std::vector<job_key> preparing_;
};

/// A board in ordinary memory, for an engine in the same process as its reader: tests, simulations.
/// Shared by both.
class plain_board final : public step_board, public board_source {
 public:
  plain_board();
  void at_hand(std::span<const job_key> keys) override { writer_.at_hand(keys); }
  void preparing(const job_key& key) override { writer_.preparing(key); }
  void prepared(const job_key& key) override { writer_.prepared(key); }
  int descriptor() const override { return -1; }
  std::optional<board_reading> read() const override;

 private:
  std::vector<std::uint64_t> memory_;
  board_writer writer_;
};

/// Reads what is left of a board. Every byte may be wrong, since the engine that crashed may have
/// written anywhere: another version, a torn or changed list, or a count out of bounds is no
/// reading.
std::optional<board_reading> read_board(std::span<const std::byte> memory);

}  // namespace troupe::crash
