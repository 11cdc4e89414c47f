#include "actors/router/shard_peers.hpp"

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace troupe;
using router::shard_peers;

namespace {

void put(directory::snapshot& all, const std::string& name, msg::Role role,
         msg::EntryState state = msg::EntryState::READY, const std::string& host = "a") {
  auto& e = all[name];
  e.name = name;
  e.role = role;
  e.state = state;
  e.host = host;
}

/// How many of three shards pass a worker's reports on.
std::size_t tellers(const directory::snapshot& all, const std::string& worker) {
  std::size_t n = 0;
  for (const auto* name : {"router/0", "router/1", "router/2"}) {
    shard_peers p{name, {}};
    p.update(all);
    if (p.passes_on(worker)) ++n;
  }
  return n;
}

}  // namespace

TEST_CASE("each worker's reports are passed on by two shards, and each shard has its workers") {
  directory::snapshot all;
  for (const auto* s : {"router/0", "router/1", "router/2"}) put(all, s, msg::Role::ROUTER);
  std::vector<std::size_t> mine(3);
  for (int i = 0; i < 60; ++i) {
    const auto worker = "both/p/h.";
    CHECK(tellers(all, worker + std::to_string(i)) == 2);
    for (std::size_t n = 0; n < 3; ++n) {
      shard_peers p{"router/" + std::to_string(n), {}};
      p.update(all);
      if (p.passes_on(worker + std::to_string(i))) ++mine[n];
    }
  }
  for (auto n : mine) {
    CHECK(n > 25);
    CHECK(n < 60);
  }
  // One that begins leaves it to the others; when it is alone it does it all the same.
  put(all, "router/1", msg::Role::ROUTER, msg::EntryState::STARTING);
  for (int i = 0; i < 20; ++i) CHECK(tellers(all, std::to_string(i)) == 2);
  all.erase("router/0");
  all.erase("router/2");
  shard_peers alone{"router/1", {}};
  CHECK(alone.passes_on("w"));  // before it has heard anything
  alone.update(all);
  CHECK(alone.passes_on("w"));
}

TEST_CASE("a shard counts those that decide, itself included") {
  shard_peers p{"router/0", {}};
  CHECK(p.deciding() == 1);
  directory::snapshot all;
  put(all, "router/1", msg::Role::ROUTER);
  put(all, "router/2", msg::Role::ROUTER, msg::EntryState::STARTING);
  put(all, "router/0", msg::Role::ROUTER, msg::EntryState::STARTING);
  p.update(all);
  CHECK(p.deciding() == 2);
  put(all, "router/0", msg::Role::ROUTER);
  p.update(all);
  CHECK(p.deciding() == 2);
}

TEST_CASE("a shard knows hubs and control hosts, and which hosts it hears nothing of") {
  shard_peers p{"router/0", {"a", "b"}};
  directory::snapshot all;
  p.update(all);
  CHECK_FALSE(p.sees_all_hosts());
  put(all, "requests/a", msg::Role::REQUESTS);
  put(all, "control", msg::Role::CONTROL);
  p.update(all);
  CHECK_FALSE(p.sees_all_hosts());
  put(all, "requests/b", msg::Role::REQUESTS, msg::EntryState::READY, "b");
  p.update(all);
  CHECK(p.sees_all_hosts());
  CHECK(p.hubs() == std::vector<std::string>{"requests/a", "requests/b"});
  CHECK(p.control_hosts() == std::vector<std::string>{"control"});
  all.erase("requests/b");
  p.update(all);
  CHECK_FALSE(p.sees_all_hosts());
}
