#include "actors/crash/shared_board.hpp"

#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <random>
#include <string>
#include <thread>

using namespace troupe;
using namespace troupe::crash;

namespace {

std::vector<job_key> some_keys(std::size_t count) {
  std::vector<job_key> keys;
  for (std::size_t i = 0; i < count; ++i)
    keys.push_back({{i + 1, ~i}, static_cast<std::uint16_t>(i % 3), static_cast<std::uint32_t>(i)});
  return keys;
}

struct board_memory {
  // Words, so that it is aligned.
  std::vector<std::uint64_t> words = std::vector<std::uint64_t>(board_bytes() / 8);
  std::span<std::byte> bytes() {
    return {reinterpret_cast<std::byte*>(words.data()), words.size() * 8};
  }
  std::optional<board_reading> read() { return read_board(bytes()); }
};

}  // namespace

TEST_CASE("what is at hand can be read, what was is forgotten") {
  board_memory m;
  board_writer board{m.bytes()};
  CHECK_FALSE(m.read());
  const auto keys = some_keys(5);
  board.at_hand(keys);
  REQUIRE(m.read());
  CHECK(m.read()->keys == keys);
  CHECK(m.read()->total == 5);
  board.at_hand(std::span{keys}.first(2));
  CHECK(m.read()->keys.size() == 2);
  board.at_hand({});
  CHECK_FALSE(m.read());
}

TEST_CASE("prompts that are being prepared are suspects beside those in the step") {
  board_memory m;
  board_writer board{m.bytes()};
  const auto keys = some_keys(4);
  board.at_hand(std::span{keys}.first(2));
  {
    preparing_mark one{std::shared_ptr<step_board>{std::shared_ptr<void>{}, &board}, keys[2]};
    board.preparing(keys[3]);
    CHECK(m.read()->keys == keys);
    CHECK(m.read()->total == 4);
  }
  CHECK(m.read()->keys == std::vector{keys[0], keys[1], keys[3]});
  board.prepared(keys[3]);
  board.at_hand({});
  CHECK_FALSE(m.read());
}

TEST_CASE("more than can be named are counted") {
  board_memory m;
  board_writer board{m.bytes()};
  board.at_hand(some_keys(1000));
  REQUIRE(m.read());
  CHECK(m.read()->keys.size() == board_keys_max);
  CHECK(m.read()->total == 1000);
}

TEST_CASE("no byte of a board can be changed without the whole list being distrusted") {
  board_memory m;
  board_writer board{m.bytes()};
  const auto keys = some_keys(3);
  board.at_hand(keys);
  const auto good = m.words;
  for (std::size_t at = 0; at < m.bytes().size(); ++at) {
    m.words = good;
    m.bytes()[at] ^= std::byte{0x5A};
    // Bytes beyond the third key mean nothing.
    if (auto r = m.read()) CHECK(r->keys == keys);
  }
}

TEST_CASE("whatever a crashing engine wrote over a board, reading it is safe") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 random{seed};
  board_memory m;
  board_writer board{m.bytes()};
  board.at_hand(some_keys(7));
  const auto good = m.words;
  for (int i = 0; i < 20'000; ++i) {
    m.words = good;
    const auto from = random() % m.words.size();
    const auto size = 1 + random() % (i % 2 == 0 ? 4 : m.words.size() - from);
    for (auto at = from; at < std::min(from + size, m.words.size()); ++at) m.words[at] = random();
    if (auto r = m.read()) {
      REQUIRE(r->keys.size() <= board_keys_max + board_preparing_max);
      REQUIRE(r->total >= r->keys.size());
    }
  }
  for (std::size_t size : {std::size_t{0}, std::size_t{7}, board_bytes() - 1})
    CHECK_FALSE(read_board(m.bytes().first(size)));
}

TEST_CASE("a list whose writing was interrupted is no reading") {
  board_memory m;
  board_writer board{m.bytes()};
  board.at_hand(some_keys(2));
  m.words[2] += 1;  // the sequence of the step's list
  CHECK_FALSE(m.read());
}

TEST_CASE("a board outlives the process that wrote it") {
  auto board = shared_board::create();
  REQUIRE(board);
  const auto keys = some_keys(2);
  CHECK_FALSE((*board)->read());
  const auto child = ::fork();
  if (child == 0) {
    auto mine = open_shared_board((*board)->descriptor());
    if (!mine) ::_exit(1);
    (*mine)->at_hand(keys);
    ::_exit(7);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WEXITSTATUS(status) == 7);
  REQUIRE((*board)->read());
  CHECK((*board)->read()->keys == keys);
}

TEST_CASE("the engine cannot take the memory away under its reader") {
  auto board = shared_board::create();
  REQUIRE(board);
  CHECK(::ftruncate((*board)->descriptor(), 0) != 0);
  CHECK_FALSE((*board)->read());
}

TEST_CASE("a descriptor that is no board is refused") {
  int fds[2];
  REQUIRE(::pipe(fds) == 0);
  CHECK_FALSE(open_shared_board(fds[0]));
  CHECK_FALSE(open_shared_board(-1));
}

TEST_CASE("the thread that faults says what it was at, and what others did is not suspected") {
  auto board = shared_board::create();
  REQUIRE(board);
  const auto keys = some_keys(4);
  const std::string who = GENERATE("the engine", "who prepares a prompt", "somebody else");
  const int how = GENERATE(SIGABRT, SIGSEGV);
  const auto child = ::fork();
  if (child == 0) {
    auto opened = open_shared_board((*board)->descriptor());
    if (!opened) ::_exit(1);
    const auto& mine = *opened;
    for (int number : {SIGABRT, SIGSEGV}) std::signal(number, SIG_DFL);  // they are the test's
    name_faulting_thread(mine);
    auto fault = [&] { std::raise(how); };
    std::thread{[&] {
      mine->preparing(keys[3]);
      if (who == "who prepares a prompt") fault();
    }}.join();
    mine->at_hand(std::span{keys}.first(2));
    if (who == "the engine") fault();
    std::thread{fault}.join();
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == how);
  const auto left = (*board)->read();
  REQUIRE(left);
  if (who == "the engine") CHECK(left->keys == std::vector{keys[0], keys[1]});
  if (who == "who prepares a prompt") CHECK(left->keys == std::vector{keys[3]});
  if (who == "somebody else") CHECK(left->total == 3);
}
