// What a stream's buffer does at its limit, without sockets.

#include "actors/gateway/http/responder.hpp"

#include "actors/gateway/http/limits.hpp"
#include "actors/request/joint_wake.hpp"

#include <catch2/catch.hpp>

#include <memory>
#include <string>

using namespace troupe;
using namespace troupe::gateway::http;

namespace {

constexpr std::size_t buffer_bytes = 16;

struct stream {
  std::shared_ptr<wake_list> wake = std::make_shared<wake_list>([] {});
  std::shared_ptr<responder> to = std::make_shared<responder>(wake, buffer_bytes);
  stream() { to->start_stream({}); }
  ~stream() { wake->take(); }  // who waits to be sent holds the list
  void append(const std::string& bytes) {
    to->append([&](std::string& out) { out += bytes; });
  }
};

gateway::openai::api_error stalled() {
  gateway::openai::api_error e;
  e.status = 408;
  e.code = "client_stalled";
  return e;
}

}  // namespace

TEST_CASE("after an overflow nothing is sent but the error: a stream has no hole", "[gateway]") {
  stream s;
  s.append("first");
  CHECK(s.to->take({}).bytes == "first");
  s.append(std::string(buffer_bytes * overflow_factor + 1, 'x'));
  REQUIRE(s.to->overflowed());
  // The client reads on before anybody has looked.
  CHECK(s.to->take({}).bytes.empty());
  s.append("after the hole");
  s.to->finish();
  CHECK_FALSE(s.to->ended());
  auto p = s.to->take({});
  CHECK(p.bytes.empty());
  CHECK_FALSE(p.ended);

  CHECK(s.to->abandon(stalled()));
  p = s.to->take({});
  CHECK(p.ended);
  CHECK(p.bytes.find("client_stalled") != std::string::npos);
  CHECK(p.bytes.find("hole") == std::string::npos);
}

TEST_CASE("an overflow before anything was sent still sends a head before the error", "[gateway]") {
  stream s;
  s.append(std::string(buffer_bytes * overflow_factor + 1, 'x'));
  CHECK_FALSE(s.to->take({}).begins);
  s.to->abandon(stalled());
  auto p = s.to->take({});
  CHECK(p.begins);
  CHECK(p.stream);
  CHECK(p.bytes.find("client_stalled") != std::string::npos);
}

TEST_CASE("an answer is abandoned once, and not after its end", "[gateway]") {
  stream s;
  s.append("all");
  s.to->finish();
  CHECK_FALSE(s.to->abandon(stalled()));
  CHECK(s.to->take({}).bytes == "all");
  stream t;
  CHECK(t.to->abandon(stalled()));
  CHECK_FALSE(t.to->abandon(stalled()));
  stream gone;
  gone.to->close();
  CHECK_FALSE(gone.to->abandon(stalled()));
}

TEST_CASE("a turn that writes to many wakes once, at its end", "[gateway]") {
  int woken = 0;
  const auto list = std::make_shared<wake_list>([&] { ++woken; });
  const auto begin = [&] {
    auto r = std::make_shared<responder>(list, buffer_bytes);
    r->start_stream({});
  };
  begin();
  CHECK(woken == 1);
  begin();
  CHECK(woken == 1);  // it is awake, and has not looked yet
  CHECK(list->take().size() == 2);
  {
    const request::joint_wake turn;
    begin();
    {
      const request::joint_wake inner;
      begin();
      list->take();
      begin();
      CHECK(woken == 1);
    }
    CHECK(woken == 2);
  }
  CHECK(woken == 3);
  // Who is to be woken may be gone by then.
  list->take();
  {
    const request::joint_wake turn;
    begin();
    list->shut();
  }
  CHECK(woken == 3);
  begin();
  CHECK(list->take().empty());
}
