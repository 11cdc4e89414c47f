#include "tools/bench/kv_transfer/measure.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace troupe::bench {

namespace {

void pin(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  ::sched_setaffinity(0, sizeof cores, &cores);  // fails on one core, which is fine
}

void whole(ssize_t moved, std::size_t wanted) {
  if (moved != static_cast<ssize_t>(wanted))
    throw std::runtime_error("the other process of the measurement has ended");
}

}  // namespace

void put(int fd, std::span<const std::byte> bytes) {
  const std::size_t size = bytes.size();
  whole(::send(fd, &size, sizeof size, MSG_NOSIGNAL), sizeof size);
  whole(::send(fd, bytes.data(), size, MSG_NOSIGNAL), size);
}

std::vector<std::byte> get(int fd) {
  std::size_t size = 0;
  whole(::recv(fd, &size, sizeof size, MSG_WAITALL), sizeof size);
  std::vector<std::byte> bytes(size);
  whole(::recv(fd, bytes.data(), size, MSG_WAITALL), size);
  return bytes;
}

std::optional<double> in_two_processes(const std::function<void(int fd)>& receive,
                                       const std::function<std::optional<double>(int fd)>& send) {
  // Both sides in children: this process never starts UCX, so each measurement starts it afresh.
  std::array<int, 2> between{};
  std::array<int, 2> result{};
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, between.data()) != 0 || ::pipe(result.data()) != 0)
    return std::nullopt;
  auto child = [&](int core, int fd, auto&& work) {
    const auto pid = ::fork();
    if (pid == 0) {
      pin(core);
      ::close(fd == between[0] ? between[1] : between[0]);
      try {
        work();
        ::_exit(0);
      } catch (const std::exception& e) {
        fmt::print(stderr, "{}\n", e.what());
        ::_exit(1);
      }
    }
    return pid;
  };
  const auto receiver = child(0, between[0], [&] { receive(between[0]); });
  const auto sender = child(1, between[1], [&] {
    const double speed = send(between[1]).value_or(0);
    whole(::write(result[1], &speed, sizeof speed), sizeof speed);
  });
  ::close(between[0]);
  ::close(between[1]);
  ::close(result[1]);
  double speed = 0;
  const bool came = ::read(result[0], &speed, sizeof speed) == sizeof speed;
  ::close(result[0]);
  ::waitpid(sender, nullptr, 0);
  ::waitpid(receiver, nullptr, 0);
  return came && speed > 0 ? std::optional(speed) : std::nullopt;
}

std::optional<double> measure_perftest(const setting& s) {
  constexpr int port = 13437;
  const auto common = fmt::format(
      "ucx_perftest -t ucp_am_bw -s {} -n {} -w {} -O {} -E sleep {} -p {} -v -f", s.piece_bytes,
      s.pieces(), warm_up, outstanding, s.where == transfer::proximity::other_host ? "-e" : "",
      port);
  const auto environment = fmt::format("env UCX_TLS={} UCX_NET_DEVICES=lo timeout 120", s.tls());
  const auto server = fmt::format("{} taskset -c 0 {} >/dev/null 2>&1", environment, common);
  std::thread serving([&] { [[maybe_unused]] auto rc = std::system(server.c_str()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(700));  // until it listens
  std::optional<double> found;
  std::string where = common;
  where.insert(where.find(' '), " 127.0.0.1");
  if (auto* out = ::popen(fmt::format("{} taskset -c 1 {} 2>&1", environment, where).c_str(),
                          "r")) {
    std::array<char, 512> line{};
    while (std::fgets(line.data(), line.size(), out) != nullptr) {
      // iterations,latency percentile,average,overall,MB/s average,MB/s overall,...; UCX's MB are
      // MiB
      std::stringstream fields(line.data());
      std::string field;
      int count = 0;
      for (; count < 6 && std::getline(fields, field, ','); ++count) {
      }
      if (count == 6 && field.find_first_not_of("0123456789.") == std::string::npos)
        found = std::stod(field);
    }
    ::pclose(out);
  }
  serving.join();
  return found;
}

}  // namespace troupe::bench
