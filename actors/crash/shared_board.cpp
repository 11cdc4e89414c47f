#include "actors/crash/shared_board.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace troupe::crash {

namespace {

error system_error(const std::string& what) {
  return {"board_failed", what + ": " + std::strerror(errno)};
}

class mapped_board final : public board_writer {
 public:
  explicit mapped_board(void* memory)
      : board_writer({static_cast<std::byte*>(memory), board_bytes()}), memory_(memory) {}
  ~mapped_board() override { ::munmap(memory_, board_bytes()); }

 private:
  void* memory_;
};

}  // namespace

expected<std::unique_ptr<board_source>> shared_board::create() {
  const int fd = ::memfd_create("troupe-step-board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return system_error("memfd_create");
  std::unique_ptr<board_source> board{new shared_board{fd}};
  if (::ftruncate(fd, static_cast<off_t>(board_bytes())) != 0) return system_error("ftruncate");
  if (::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return system_error("F_ADD_SEALS");
  return board;
}

shared_board::~shared_board() { ::close(fd_); }

std::optional<board_reading> shared_board::read() const {
  std::vector<std::byte> copy(board_bytes());
  if (::pread(fd_, copy.data(), copy.size(), 0) != static_cast<ssize_t>(copy.size()))
    return std::nullopt;
  return read_board(copy);
}

expected<std::shared_ptr<step_board>> open_shared_board(int descriptor) {
  struct stat s {};
  const bool fits = ::fstat(descriptor, &s) == 0 && s.st_size == static_cast<off_t>(board_bytes());
  void* memory = fits ? ::mmap(nullptr, board_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED,
                               descriptor, 0)
                      : MAP_FAILED;
  if (memory == MAP_FAILED) return system_error("the inherited step board cannot be mapped");
  ::close(descriptor);
  return std::shared_ptr<step_board>{std::make_shared<mapped_board>(memory)};
}

}  // namespace troupe::crash
