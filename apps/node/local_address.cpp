#include "apps/node/local_address.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

namespace troupe::apps {

expected<void> check_listen_address(const std::string& what, const std::string& address,
                                    std::uint16_t port) {
  namespace asio = boost::asio;
  const auto where = address + ":" + std::to_string(port);
  boost::system::error_code e;
  const auto ip = asio::ip::make_address(address, e);
  if (e) return error{"address_not_ours", what + ": '" + address + "' is no IP address"};
  asio::io_context io;
  asio::ip::tcp::acceptor acceptor{io};
  const asio::ip::tcp::endpoint endpoint{ip, port};
  // As the listener itself will: an address in TIME_WAIT is no obstacle, another listener is.
  acceptor.open(endpoint.protocol(), e);
  if (!e) acceptor.set_option(asio::ip::tcp::acceptor::reuse_address(true), e);
  if (!e) acceptor.bind(endpoint, e);
  if (!e) acceptor.listen(1, e);
  if (!e) return ok;
  if (e == asio::error::address_in_use)
    return error{"port_in_use", what + ": port " + std::to_string(port) + " of " + address +
                                    " is in use by another process (`ss -ltnp sport = :" +
                                    std::to_string(port) + "` names it)"};
  if (e == boost::system::errc::address_not_available)
    return error{"address_not_ours", what + ": " + address +
                                         " is not an address of this machine (`ip -brief address` "
                                         "lists them); is --host the right one?"};
  return error{"cannot_listen", what + ": cannot listen on " + where + ": " + e.message()};
}

}  // namespace troupe::apps
