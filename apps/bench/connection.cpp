#include "apps/bench/connection.hpp"

#include <boost/asio/connect.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>

#include <utility>

namespace troupe::bench {

namespace beast = boost::beast;
using beast::error_code;

connection::connection(boost::asio::io_context& io, const http_target& target,
                       const tcp::resolver::results_type& addresses, simdjson::dom::parser& json,
                       connection_owner& owner)
    : socket_(io), target_(target), addresses_(addresses), json_(json), owner_(owner) {}

void connection::send(job j, histogram* gaps) {
  job_ = std::move(j);
  busy_ = true;
  answer_.emplace(json_, gaps);
  parser_.emplace();
  parser_->body_limit(boost::none);  // the reader has limits of its own
  parser_->eager(true);
  parser_->get().body() = {&*answer_, job_.intended};
  if (socket_.is_open())
    write();
  else
    connect();
}

void connection::connect() {
  boost::asio::async_connect(socket_, addresses_,
                             [self = shared_from_this()](error_code ec, const tcp::endpoint&) {
                               if (self->closed_) return;
                               if (ec) return self->on_failure("connect_failed", ec.message());
                               self->socket_.set_option(tcp::no_delay{true}, ec);
                               if (self->target_.https)
                                 self->greet();
                               else
                                 self->write();
                             });
}

void connection::greet() {
  tls_.emplace(socket_, *target_.tls);
  expect_host(tls_->native_handle(), target_.host);
  tls_->async_handshake(
      boost::asio::ssl::stream_base::client, [self = shared_from_this()](error_code ec) {
        if (self->closed_) return;
        if (!ec) return self->write();
        self->on_failure("tls_failed", handshake_failure(self->tls_->native_handle(), ec));
      });
}

void connection::write() {
  job_.sent = clock::now();
  auto done = [self = shared_from_this()](error_code ec, std::size_t) {
    if (self->closed_) return;
    if (ec) return self->on_failure("broken_connection", ec.message());
    self->read();
  };
  if (tls_)
    http::async_write(*tls_, job_.message, std::move(done));
  else
    http::async_write(socket_, job_.message, std::move(done));
}

void connection::read() {
  auto done = [self = shared_from_this()](error_code ec, std::size_t) {
    if (!self->closed_) self->on_read(ec);
  };
  if (tls_)
    http::async_read_some(*tls_, buffer_, *parser_, std::move(done));
  else
    http::async_read_some(socket_, buffer_, *parser_, std::move(done));
}

void connection::on_read(error_code ec) {
  if (ec)
    return on_failure(answer_->started() ? "broken_stream" : "broken_connection", ec.message());
  if (answer_->broken()) return finish(answer_->finish(since_intended()), false);
  if (!parser_->is_done()) return read();
  // Without a body, nobody has read it.
  if (!answer_->started()) answer_->on_header(parser_->get().result_int(), false);
  finish(answer_->finish(since_intended()), parser_->keep_alive());
}

void connection::on_failure(const char* kind, const std::string& message) {
  // A server may close an idle connection at any time; that says nothing about the request.
  if (answers_ > 0 && !answer_->started()) {
    busy_ = false;
    drop();
    owner_.on_stale(shared_from_this(), std::move(job_));
    return;
  }
  finish(answer_->fail(kind, message, since_intended()), false);
}

void connection::finish(outcome o, bool keep) {
  if (job_.sent != clock::time_point{}) o.sent = job_.sent - job_.intended;
  busy_ = false;
  ++answers_;
  if (!keep) drop();
  owner_.on_answer(shared_from_this(), job_.planned, std::move(o));
}

void connection::abort(std::string kind, std::string message) {
  finish(answer_->fail(std::move(kind), std::move(message), since_intended()), false);
}

void connection::drop() {
  closed_ = true;
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace troupe::bench
