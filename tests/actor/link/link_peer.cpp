// Host b of frozen_test.cpp, or the process in the middle. Says what happens in lines:
//
//   link_peer middle       says its port
//   link_peer direct       listens for links at the port that it says
//   link_peer end PORT     offers a listener at the exchange there; another one when told `offer`
//
// Through each link that has ever come up it says, ten times a second, the link's number to the
// name `sink`. Ends when its input does.

#include "actors/link/door.hpp"
#include "tests/actor/link/basp.hpp"

#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

using namespace troupe;
using namespace troupe::link;
using namespace troupe::link::contract;

namespace {

constexpr int turn_ms = 100;

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

/// Waits a turn; false: the input has ended. What was told goes to `told`.
bool turn(std::string& told) {
  told.clear();
  pollfd in{0, POLLIN, 0};
  if (::poll(&in, 1, turn_ms) <= 0) return true;
  char bytes[256];
  const auto n = ::read(0, bytes, sizeof bytes);
  if (n > 0) told.assign(bytes, static_cast<std::size_t>(n));
  return n > 0;
}

int run_middle() {
  exchange x;
  say("port " + std::to_string(x.port()));
  std::string told;
  while (turn(told)) continue;
  return 0;
}

int run_b(std::uint16_t exchange_port) {
  basp_process b{"b", 2};
  const auto got = b.at.bind("peer", 0);
  caf::actor listener;
  // Another one each time: BASP learns a lost indirect route again by a handle that is new to it.
  const auto offer = [&] {
    listener = spawn_listener(b.system, b.at.shared());
    b.at.actors.push_back(listener);
    if (wait_until([&] { return leave_at_exchange(b.system, exchange_port, "b", listener); },
                   patience))
      say("offered");
  };
  if (exchange_port == 0) {
    const auto port = listen_at(b.system, b.at.shared(), "127.0.0.1", 0, {}, listener);
    if (!port) return 1;
    b.at.actors.push_back(listener);
    say("port " + std::to_string(*port));
  } else {
    offer();
  }

  std::size_t ups = 0, downs = 0, texts = 0;
  std::string told;
  while (turn(told)) {
    if (told == "offer\n") offer();
    const auto up = b.at.heard->ups.all();
    const auto down = b.at.heard->downs.all();
    const auto text_in = got.texts();
    while (ups < up.size()) say("up " + std::to_string(++ups));
    while (downs < down.size()) say("down " + down[downs++].reason);
    while (texts < text_in.size()) say("got " + text_in[texts++]);
    for (std::size_t i = 0; i < up.size(); ++i)
      caf::anon_send(up[i].link,
                     msg::make_parcel({"sink", 0}, {"peer", 0}, text(std::to_string(i + 1))));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (role == "middle") return run_middle();
  if (role == "direct") return run_b(0);
  if (role == "end" && argc > 2) return run_b(static_cast<std::uint16_t>(std::atoi(argv[2])));
  return 2;
}
