#include "actors/console/frames.hpp"

#include "messages/console.capnp.h"

#include <catch2/catch.hpp>

#include <string>

using namespace troupe;
using namespace troupe::console;

namespace {

msg::frozen_message request(std::uint32_t id) {
  msg::draft<msg::ConsoleRequest> d;
  d->setId(id);
  return std::move(d).freeze().value().body;
}

std::uint32_t id_of(const msg::frozen_message& m) {
  return msg::view<msg::ConsoleRequest> { m } -> getId();
}

}  // namespace

TEST_CASE("frames come whole, however their bytes are cut") {
  std::vector<char> bytes;
  for (std::uint32_t id = 1; id <= 3; ++id) {
    const auto f = to_frame(request(id));
    bytes.insert(bytes.end(), f.begin(), f.end());
  }
  for (const std::size_t cut : {std::size_t{1}, std::size_t{7}, bytes.size()}) {
    INFO(cut);
    frame_reader r;
    std::vector<std::uint32_t> ids;
    for (std::size_t at = 0; at < bytes.size(); at += cut) {
      r.push(std::span{bytes}.subspan(at, std::min(cut, bytes.size() - at)));
      while (true) {
        auto m = r.next();
        REQUIRE(m);
        if (!*m) break;
        ids.push_back(id_of(**m));
      }
    }
    CHECK(ids == std::vector<std::uint32_t>{1, 2, 3});
  }
}

TEST_CASE("what is no frame is an error, told before it is there") {
  frame_reader large;
  const std::string http = "GET / HTTP/1.1\r\n";
  large.push(http);
  const auto too_large = large.next();
  REQUIRE_FALSE(too_large);
  CHECK(too_large.error().code == "message_too_large");

  frame_reader malformed;
  const std::string sixteen("\x10\0\0\0"
                            "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
                            20);
  malformed.push(sixteen);
  CHECK_FALSE(malformed.next());
}
