// A gateway in front of the fake desk, for clients of the API that need no cluster:
//
//   fake_gateway [PORT [PACE_US]]
//
// prints its port and serves until it gets SIGTERM or SIGINT.

#include "actors/gateway/gateway.hpp"
#include "tests/support/fake_desk.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const auto pace = std::chrono::microseconds(argc > 2 ? std::strtol(argv[2], nullptr, 10) : 1000);
  auto desk = std::make_shared<troupe::test::fake_desk>(pace);
  troupe::gateway::gateway_options options;
  if (argc > 1) options.port = static_cast<std::uint16_t>(std::strtoul(argv[1], nullptr, 10));
  troupe::gateway::http_gateway gateway{options, desk};
  if (auto started = gateway.start(); !started) {
    std::fprintf(stderr, "fake_gateway: %s\n", started.error().message.c_str());
    return 1;
  }
  std::printf("%u\n", static_cast<unsigned>(gateway.local_port()));
  std::fflush(stdout);
  int number = 0;
  sigwait(&signals, &number);
  gateway.stop();
  return 0;
}
