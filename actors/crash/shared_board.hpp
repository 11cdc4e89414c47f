#pragma once

#include "actors/crash/step_board.hpp"
#include "messages/base/expected.hpp"

#include <memory>

namespace troupe::crash {

/// A board in memory that an engine's process inherits: made by its launcher before each start,
/// read after the process's end. The memory is sealed against resizing, and read by copy, so that
/// nothing that the engine did can harm the reader.
class shared_board final : public board_source {
 public:
  /// Errors: `board_failed` with the system's reason.
  static expected<std::unique_ptr<board_source>> create();
  ~shared_board() override;
  shared_board(const shared_board&) = delete;
  shared_board& operator=(const shared_board&) = delete;

  int descriptor() const override { return fd_; }
  std::optional<board_reading> read() const override;

 private:
  explicit shared_board(int fd) : fd_(fd) {}
  int fd_;
};

/// The engine's side: writes to the memory behind an inherited descriptor, which is closed. Errors:
/// `board_failed`.
expected<std::shared_ptr<step_board>> open_shared_board(int descriptor);

/// From now on a thread of this process that faults says on the board which part of it it worked
/// at, before the process ends as it would have. Once per process, for a board that
/// `open_shared_board` has made; signals that somebody handles already are left alone.
void name_faulting_thread(const std::shared_ptr<step_board>& board);

}  // namespace troupe::crash
