#include "apps/node/local_address.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <catch2/catch.hpp>

using troupe::apps::check_listen_address;

TEST_CASE("a free port of this machine is fine, again and again") {
  CHECK(check_listen_address("links", "127.0.0.1", 0));
  CHECK(check_listen_address("links", "127.0.0.3", 0));
}

TEST_CASE("a port in use is named with its address") {
  boost::asio::io_context io;
  boost::asio::ip::tcp::acceptor other{io, {boost::asio::ip::make_address("127.0.0.1"), 0}};
  const auto port = other.local_endpoint().port();
  auto r = check_listen_address("links of host h0", "127.0.0.1", port);
  REQUIRE_FALSE(r);
  CHECK(r.error().code == "port_in_use");
  CHECK(r.error().message.find("links of host h0") != std::string::npos);
  CHECK(r.error().message.find(std::to_string(port)) != std::string::npos);
  // The same port of another address is free.
  CHECK(check_listen_address("links", "127.0.0.2", port));
}

TEST_CASE("an address of another machine, and what is no address") {
  auto far = check_listen_address("links", "203.0.113.7", 7100);
  REQUIRE_FALSE(far);
  CHECK(far.error().code == "address_not_ours");
  auto none = check_listen_address("links", "h0.example", 7100);
  REQUIRE_FALSE(none);
  CHECK(none.error().code == "address_not_ours");
}
