// What a message over a link costs, plain and by TLS, in one run:
//
//   troupe_bench_link [--messages N] [--bytes B] [--window W] [--rounds R]
//
// Two actor systems of this process are linked over loopback; W messages are on their way at a
// time, each is sent back. Printed for each round: microseconds of CPU (both ends, kernel's part
// included) and of wall time per message.

#include "actors/link/door.hpp"
#include "actors/link/link_actor.hpp"
#include "actors/link/sockets.hpp"
#include "actors/link/system_config.hpp"
#include "actors/link/tls_session.hpp"
#include "actors/trust/certificate_files.hpp"

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <signal.h>
#include <sys/resource.h>

#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>

using namespace troupe;

namespace {

struct plan {
  std::uint64_t messages = 20'000;
  std::size_t bytes = 256;
  std::uint64_t window = 16;
  int rounds = 3;
};

/// Certificates for both ends, in a folder that goes with it.
struct certificates {
  certificates() {
    auto name = (std::filesystem::temp_directory_path() / "troupe-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for certificates");
    folder.path = name;
    const auto now = std::chrono::system_clock::now();
    const auto ca = trust::make_ca("bench", trust::ca_validity, now).value();
    write(folder.ca(), folder.ca_key(), ca);
    for (const auto* host : {"a", "b"}) {
      trust::request r;
      r.name = host;
      r.dns = {host};
      write(folder.host(host), folder.host_key(host), trust::issue(ca, r, now).value());
    }
  }
  ~certificates() { std::filesystem::remove_all(folder.path); }
  certificates(const certificates&) = delete;
  certificates& operator=(const certificates&) = delete;

  static void write(const std::string& certificate, const std::string& key,
                    const trust::identity_pem& what) {
    if (auto done = trust::write_identity(certificate, key, what, trust::existing::keep); !done)
      throw std::runtime_error(done.error().message);
  }

  trust::certificate_folder folder;
};

/// One process of the two.
struct end {
  end(const std::string& host, std::uint8_t number, const certificates* by) {
    link::link_context c;
    c.self.cluster_id = "bench";
    c.self.process.fill(number);
    c.self.host = host;
    c.known_hosts = {"a", "b"};
    c.office = office;
    c.owner = system.spawn(
        [](caf::event_based_actor* self, std::promise<caf::actor>* to) -> caf::behavior {
          self->set_default_handler(caf::drop);
          return {[to](const link::link_up& x) { to->set_value(x.link); }};
        },
        &up);
    if (by != nullptr) {
      auto o = std::make_shared<link::tls_options>();
      o->credentials = trust::credentials::load(
                           {by->folder.host(host), by->folder.host_key(host), by->folder.ca()},
                           trust::tls_use::cluster)
                           .value();
      o->hosts = {{{"127.0.0.1", port}, "a"}};
      o->on_refused = [](const std::string&, const error& why) {
        fmt::print(stderr, "{}\n", why.message);
      };
      door.peers = o->peers;
      door.by = link::tls_guard(o);
      c.dialler = link::spawn_dialler(system, *door.by);
    }
    context = std::make_shared<const link::link_context>(std::move(c));
  }
  ~end() {
    if (context->dialler) link::end_dialler(context->dialler);
    caf::anon_send_exit(context->owner, caf::exit_reason::user_shutdown);
  }

  static std::uint16_t port;
  link::system_config config;
  caf::actor_system system{config};
  std::shared_ptr<link::post_office> office = std::make_shared<link::post_office>();
  std::promise<caf::actor> up;
  link::door door;
  std::shared_ptr<const link::link_context> context;
};
std::uint16_t end::port = 0;

double cpu_us() {
  rusage u{};
  ::getrusage(RUSAGE_SELF, &u);
  const auto us = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_usec);
  };
  return us(u.ru_utime) + us(u.ru_stime);
}

caf::behavior echo(caf::event_based_actor*, std::shared_ptr<link::post_office> office) {
  return {[office](const link::origin& o, const msg::envelope<msg::Goodbye>& e) {
    office->send(o.from, o.to, e);
  }};
}

caf::behavior source(caf::event_based_actor*, std::shared_ptr<link::post_office> office,
                     std::uint64_t left, std::promise<void>* done) {
  auto to_come = std::make_shared<std::uint64_t>(left);
  return {[office, to_come, done](const link::origin& o, const msg::envelope<msg::Goodbye>& e) {
    if (--*to_come == 0) return done->set_value();
    office->send(o.from, o.to, e);
  }};
}

void measure(const plan& p, const char* name, const certificates* by) {
  end a{"a", 1, by};
  caf::actor listener;
  auto bound = link::listen_at(a.system, a.context, "127.0.0.1", 0, a.door, listener);
  if (!bound) throw std::runtime_error(bound.error().message);
  end::port = *bound;
  end b{"b", 2, by};
  const auto connector = link::spawn_connector(b.system, b.context, "a", "127.0.0.1", *bound);
  const auto at_a = a.up.get_future().get(), at_b = b.up.get_future().get();
  std::promise<void> done;
  const auto replies = a.system.spawn(echo, a.office);
  const auto asks = b.system.spawn(source, b.office, p.messages, &done);
  a.office->bind("echo", 1, replies);
  a.office->set_route("source", 1, at_a);
  b.office->bind("source", 1, asks);
  b.office->set_route("echo", 1, at_b);
  msg::draft<msg::Goodbye> d;
  d->setReason(std::string(p.bytes, 'x'));
  const auto message = std::move(d).freeze().value();
  const auto before = cpu_us();
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < p.window; ++i) b.office->send({"echo", 1}, {"source", 1}, message);
  done.get_future().wait();
  const std::chrono::duration<double, std::micro> wall = std::chrono::steady_clock::now() - start;
  const auto each = 2.0 * static_cast<double>(p.messages);
  fmt::print("{:5} {} bytes: {:6.2f} us CPU, {:6.2f} us wall per message\n", name, p.bytes,
             (cpu_us() - before) / each, wall.count() / each);
  caf::anon_send_exit(connector, caf::exit_reason::user_shutdown);
  for (const auto& x : {listener, replies, asks})
    caf::anon_send_exit(x, caf::exit_reason::user_shutdown);
}

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  plan p;
  CLI::App app{"What a message over a link costs, plain and by TLS."};
  app.add_option("--messages", p.messages)->capture_default_str();
  app.add_option("--bytes", p.bytes)->capture_default_str();
  app.add_option("--window", p.window)->capture_default_str();
  app.add_option("--rounds", p.rounds)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  certificates by;
  for (int i = 0; i < p.rounds; ++i) {
    measure(p, "plain", nullptr);
    measure(p, "TLS", &by);
  }
  return 0;
}
