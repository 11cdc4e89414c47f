// A gateway in front of the fake desk, for clients of the API that need no cluster:
//
//   fake_gateway [PORT [PACE_US [FOLDER]]]
//
// prints its port and serves until it gets SIGTERM or SIGINT. With a folder it speaks HTTPS, by
// certificates that it writes there: ca.pem is for the clients.

#include "actors/gateway/gateway.hpp"
#include "actors/trust/certificate_files.hpp"
#include "tests/support/fake_desk.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace {

namespace trust = troupe::trust;

troupe::expected<std::shared_ptr<trust::credentials>> certified(const std::string& path) {
  const trust::certificate_folder folder{path};
  const auto now = std::chrono::system_clock::now();
  auto ca = trust::make_ca("fake", trust::ca_validity, now);
  if (!ca) return std::move(ca).error();
  trust::request what;
  what.name = "localhost";
  what.dns = {"localhost"};
  what.addresses = {"127.0.0.1"};
  auto own = trust::issue(*ca, what, now);
  if (!own) return std::move(own).error();
  const auto write = [](const auto&... x) {
    return trust::write_identity(x..., trust::existing::replace);
  };
  if (auto done = write(folder.ca(), folder.ca_key(), *ca); !done) return std::move(done).error();
  if (auto done = write(folder.host("fake"), folder.host_key("fake"), *own); !done)
    return std::move(done).error();
  return trust::credentials::load({folder.host("fake"), folder.host_key("fake"), {}},
                                  trust::tls_use::clients);
}

}  // namespace

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
  if (argc > 3) {
    auto loaded = certified(argv[3]);
    if (!loaded) {
      std::fprintf(stderr, "fake_gateway: %s\n", loaded.error().message.c_str());
      return 1;
    }
    options.credentials = *std::move(loaded);
  }
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
