#include "actors/crash/shared_board.hpp"

#include <fcntl.h>
#include <signal.h>
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

/// Never destroyed: a fault may come at any time.
std::shared_ptr<mapped_board>* marked = nullptr;

extern "C" void on_fault(int number) {
  (*marked)->mark_fault();
  // The default action is back already (SA_RESETHAND).
  ::raise(number);
}

}  // namespace

void name_faulting_thread(const std::shared_ptr<step_board>& board) {
  auto mine = std::dynamic_pointer_cast<mapped_board>(board);
  if (!mine || marked != nullptr) return;
  marked = new std::shared_ptr<mapped_board>{std::move(mine)};
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS}) {
    struct sigaction now {};
    if (::sigaction(number, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;
    now.sa_handler = on_fault;
    now.sa_flags = SA_RESETHAND | SA_NODEFER;
    ::sigaction(number, &now, nullptr);
  }
}

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
