#include "apps/bench/connection.hpp"

#include <boost/asio/connect.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>

#include <utility>

namespace troupe::bench {

namespace beast = boost::beast;
using beast::error_code;

connection::connection(boost::asio::io_context& io, const tcp::resolver::results_type& addresses,
                       simdjson::dom::parser& json, connection_owner& owner)
    : socket_(io), addresses_(addresses), json_(json), owner_(owner) {}

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
                               if (ec) return self->on_failure("connect_failed", ec);
                               self->socket_.set_option(tcp::no_delay{true}, ec);
                               self->write();
                             });
}

void connection::write() {
  job_.sent = clock::now();
  http::async_write(socket_, job_.message, [self = shared_from_this()](error_code ec, std::size_t) {
    if (self->closed_) return;
    if (ec) return self->on_failure("broken_connection", ec);
    self->read();
  });
}

void connection::read() {
  http::async_read_some(socket_, buffer_, *parser_,
                        [self = shared_from_this()](error_code ec, std::size_t) {
                          if (!self->closed_) self->on_read(ec);
                        });
}

void connection::on_read(error_code ec) {
  if (ec) return on_failure(answer_->started() ? "broken_stream" : "broken_connection", ec);
  if (answer_->broken()) return finish(answer_->finish(since_intended()), false);
  if (!parser_->is_done()) return read();
  finish(answer_->finish(since_intended()), parser_->keep_alive());
}

void connection::on_failure(const char* kind, error_code ec) {
  // A server may close an idle connection at any time; that says nothing about the request.
  if (answers_ > 0 && !answer_->started()) {
    busy_ = false;
    drop();
    owner_.on_stale(shared_from_this(), std::move(job_));
    return;
  }
  finish(answer_->fail(kind, ec.message(), since_intended()), false);
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
