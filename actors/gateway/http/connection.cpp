#include "actors/gateway/http/connection.hpp"

#include "actors/gateway/http/limits.hpp"
#include "actors/gateway/openai/encode.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/chunk_encode.hpp>
#include <boost/beast/http/serializer.hpp>
#include <fmt/format.h>
#include <openssl/err.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe::gateway::http {

namespace bhttp = boost::beast::http;
using boost::system::error_code;

namespace {

using openai::make_error;

/// Returns how many bytes that were. A function, so that what is a temporary at its caller lives
/// long enough: `buffers_range_ref` in a loop's head would refer to one that is gone.
template <class Buffers>
std::size_t append_buffers(std::string& to, const Buffers& buffers) {
  const auto before = to.size();
  for (const auto part : boost::beast::buffers_range_ref(buffers))
    to.append(static_cast<const char*>(part.data()), part.size());
  return to.size() - before;
}

}  // namespace

connection::connection(server::impl& s, client_stream stream)
    : server_(s), stream_(std::move(stream)),
      buffer_(s.limits().header_bytes_max + read_bytes_max + pipelined_bytes_max),
      since_(clock::now()) {
  error_code ignored;
  auto& socket = stream_.socket();
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::send_buffer_size(socket_send_buffer_bytes), ignored);
  socket.non_blocking(true, ignored);
}

void connection::start() {
  deadline_ = since_ + server_.limits().header_timeout;
  if (stream_.encrypted())
    greet();
  else
    read();
}

void connection::turn_away() {
  turned_away_ = true;
  if (stream_.encrypted() && phase_ != phase::greeting) return start();
  refuse(503, "too_many_connections",
         "This gateway has as many connections as it may (limits.connections_max), and none is "
         "idle; try again later.",
         turned_away_retry_after);
}

// -- the handshake of TLS -------------------------------------------------------------------------

/// It has the time that headers have: who says nothing, or goes on too slowly, is closed.
void connection::greet() {
  phase_ = phase::greeting;
  stream_.handshake([self = shared_from_this()](error_code ec) {
    if (self->phase_ != phase::closed) self->on_greeted(ec);
  });
}

void connection::on_greeted(error_code ec) {
  if (ec.category() == asio::error::get_ssl_category() &&
      ERR_GET_REASON(static_cast<unsigned long>(ec.value())) == SSL_R_HTTP_REQUEST) {
    stream_.give_up_encryption();
    refuse(400, "https_needed", "This port speaks HTTPS only: begin the URL with https://.");
    return;
  }
  if (ec) {
    server_.events().refused("tls_handshake_failed");
    close();
    return;
  }
  if (turned_away_) return turn_away();
  phase_ = phase::reading;
  deadline_ = clock::now() + server_.limits().header_timeout;
  read();
}

// -- reading --------------------------------------------------------------------------------------

void connection::read() {
  if (reading_ || end_of_input_ || phase_ == phase::closed) return;
  if (phase_ == phase::answering && buffer_.size() >= pipelined_bytes_max) discard_ahead();
  const auto room = std::min(read_bytes_max, buffer_.max_size() - buffer_.size());
  reading_ = true;
  stream_.read_some(buffer_.prepare(room),
                    [self = shared_from_this()](error_code ec, std::size_t bytes) {
                      self->reading_ = false;
                      self->on_read(ec, bytes);
                    });
}

void connection::on_read(error_code ec, std::size_t bytes) {
  if (phase_ == phase::closed) return;
  if (ec == asio::error::eof) {
    on_end_of_input();
    return;
  }
  if (ec) {
    lose("client_gone");
    return;
  }
  if (discarding_) {
    discarded_bytes_ += bytes;
    if (discarded_bytes_ > discarded_bytes_max)
      lose("client_sent_too_much");
    else
      read();
    return;
  }
  buffer_.commit(bytes);
  process();
}

void connection::discard_ahead() {
  if (!discarding_) server_.events().refused("sent_too_far_ahead");
  discarding_ = true;
  keep_alive_ = false;
  buffer_.consume(buffer_.size());
}

void connection::on_end_of_input() {
  end_of_input_ = true;
  if (phase_ != phase::answering)
    close();
  else if (answer_->has_gone_handler())
    lose("client_gone");
  // Else the whole answer is on its way already: a client may stop sending before it has read it.
}

void connection::chunk_budget::operator()(std::uint64_t, boost::beast::string_view extensions,
                                          error_code& ec) {
  if (extensions.size() > extension_bytes_left)
    ec = bhttp::error::header_limit;
  else
    extension_bytes_left -= extensions.size();
}

void connection::process() {
  while (phase_ == phase::reading && buffer_.size() > 0)
    if (!parse()) break;
  if (phase_ == phase::lingering) buffer_.consume(buffer_.size());
  if (phase_ == phase::reading && end_of_input_) {
    close();
    return;
  }
  read();
}

/// False: more bytes are needed, or the connection changed its phase.
bool connection::parse() {
  if (!parser_) {
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(server_.limits().header_bytes_max));
    parser_->body_limit(server_.body_bytes_max());
    parser_->eager(true);
    on_chunk_.extension_bytes_left = server_.limits().header_bytes_max;
    parser_->on_chunk_header(on_chunk_);
    header_seen_ = false;
    deadline_ = clock::now() + server_.limits().header_timeout;
  }
  error_code ec;
  const auto used = parser_->put(buffer_.data(), ec);
  buffer_.consume(used);
  const bool more = ec == bhttp::error::need_more;
  if (more) ec = {};
  // Behind the headers, only what surrounds chunks is left over until it is complete.
  if (more && parser_->is_header_done() && buffer_.size() > server_.limits().header_bytes_max)
    ec = bhttp::error::header_limit;
  if (ec == bhttp::error::header_limit) {
    refuse(431, "headers_too_large",
           fmt::format("The headers, or the extensions or trailers of a body in chunks, are larger "
                       "than {} bytes.",
                       server_.limits().header_bytes_max));
    return false;
  }
  if (ec == bhttp::error::body_limit) {
    refuse(413, "body_too_large",
           fmt::format("The body is larger than {} bytes.", server_.body_bytes_max()));
    return false;
  }
  if (ec) {
    refuse(400, "bad_http", fmt::format("This is not a valid HTTP request: {}.", ec.message()));
    return false;
  }
  if (parser_->is_header_done() && !header_seen_ && !on_header()) return false;
  if (!take_body(parser_->get().body().size())) return false;
  if (parser_->is_done()) {
    if (!check_header_count()) return false;  // trailers count, too
    dispatch();
    return true;
  }
  return !more;
}

bool connection::on_header() {
  header_seen_ = true;
  deadline_ = clock::now() + server_.limits().body_timeout;
  const auto& head = parser_->get();
  if (!check_header_count() || !check_encoding()) return false;
  if (auto wrong = check_host(head, server_.known())) {
    refuse(*std::move(wrong));
    return false;
  }
  if (const auto length = parser_->content_length(); length && !take_body(*length)) return false;
  if (const auto expect = head.find(bhttp::field::expect); expect != head.end()) {
    if (!boost::beast::iequals(expect->value(), "100-continue")) {
      refuse(417, "expectation_failed", "Only 'Expect: 100-continue' is understood.");
      return false;
    }
    if (!parser_->is_done()) {
      go_on();
    }
  }
  return true;
}

void connection::go_on() {
  static constexpr std::string_view words = "HTTP/1.1 100 Continue\r\n\r\n";
  const asio::const_buffer bytes{words.data(), words.size()};
  error_code ignored;
  if (!stream_.encrypted()) {
    // A few bytes into an empty socket buffer: there is nothing to wait for.
    stream_.socket().write_some(bytes, ignored);
    return;
  }
  writing_ = true;
  stream_.write_some(bytes, [self = shared_from_this()](error_code, std::size_t) {
    self->writing_ = false;
    self->flush();
  });
}

bool connection::check_header_count() {
  const auto& head = parser_->get();
  const auto count = std::distance(head.begin(), head.end());
  if (static_cast<std::uint64_t>(count) <= server_.limits().headers_max) return true;
  refuse(431, "too_many_headers",
         fmt::format("There are more than {} headers.", server_.limits().headers_max));
  return false;
}

/// Whatever else it is called, somebody before us may see the body's end elsewhere than we do: what
/// is a body for one would be the next request for the other.
bool connection::check_encoding() {
  const auto& head = parser_->get();
  if (head.count(bhttp::field::transfer_encoding) == 0) return true;
  if (head.count(bhttp::field::transfer_encoding) == 1 && head.version() >= 11 &&
      boost::beast::iequals(head[bhttp::field::transfer_encoding], "chunked"))
    return true;
  refuse(501, "unsupported_transfer_encoding",
         "Of transfer encodings only 'chunked' is understood, and only in HTTP/1.1.");
  return false;
}

/// `bytes` in all, of which some may have been taken before.
bool connection::take_body(std::uint64_t bytes) {
  if (bytes <= body_bytes_) return true;
  if (server_.take_body_bytes(bytes - body_bytes_)) {
    body_bytes_ = bytes;
    return true;
  }
  refuse(503, "too_many_bodies",
         "The bodies that this gateway is receiving fill the memory that it has for prompts "
         "(limits.held_prompt_bytes_max); try again later.",
         bodies_retry_after);
  return false;
}

void connection::drop_parser() {
  parser_.reset();
  server_.give_body_bytes(std::exchange(body_bytes_, 0));
}

void connection::refuse(int status, const char* code, std::string message,
                        std::chrono::milliseconds retry_after) {
  auto e = make_error(status, code, std::move(message));
  e.retry_after = retry_after;
  refuse(e);
}

void connection::refuse(const openai::api_error& why) {
  server_.events().refused(why.code);
  head_only_ = false;
  version_ = 11;
  keep_alive_ = false;
  drop_parser();
  begin_answer();
  answer_->send(error_reply(why));
}

void connection::dispatch() {
  auto request = parser_->release();
  drop_parser();
  head_only_ = request.method() == bhttp::verb::head;
  version_ = request.version();
  keep_alive_ = request.keep_alive();
  begin_answer();
  server_.on_request()(std::move(request), answer_);
}

// -- answering ------------------------------------------------------------------------------------

void connection::begin_answer() {
  phase_ = phase::answering;
  since_ = progress_ = clock::now();
  full_since_.reset();
  last_portion_ = false;
  answer_ = std::make_shared<responder>(server_.wake(), server_.limits().stream_buffer_bytes_max);
  answer_->on_output([weak = weak_from_this()] {
    if (auto self = weak.lock()) self->flush();
  });
}

void connection::flush() {
  if (phase_ != phase::answering || writing_) return;
  write();
}

bool connection::refill() {
  out_.clear();
  out_sent_ = 0;
  if (last_portion_) return false;
  auto p = answer_->take(std::exchange(spare_, {}));
  if (p.begins) add_head(p);
  if (p.stream && !head_only_) {
    if (!p.bytes.empty()) {
      if (chunked_)
        append_buffers(out_, bhttp::make_chunk(asio::const_buffer(p.bytes.data(), p.bytes.size())));
      else
        out_ += p.bytes;
    }
    if (p.ended && chunked_) append_buffers(out_, bhttp::make_chunk_last());
  }
  if (!p.ended && p.bytes.capacity() <= spare_bytes_max) {
    spare_ = std::move(p.bytes);
    spare_.clear();
  }
  last_portion_ = p.ended;
  return !out_.empty();
}

void connection::add_head(responder::portion& p) {
  if (server_.draining()) keep_alive_ = false;
  bhttp::response<bhttp::string_body> head{bhttp::int_to_status(p.head.status), version_};
  head.set(bhttp::field::server, "troupe");
  head.set(bhttp::field::date, server_.date());
  if (!p.head.content_type.empty()) head.set(bhttp::field::content_type, p.head.content_type);
  for (const auto& [name, value] : p.head.headers) head.set(name, value);
  chunked_ = false;
  if (p.stream) {
    head.set(bhttp::field::cache_control, "no-cache");
    chunked_ = version_ >= 11;
    if (!chunked_) keep_alive_ = false;  // HTTP/1.0: the end of the connection ends the answer
    if (chunked_) head.chunked(true);
  } else if (p.head.status != 204) {
    head.content_length(p.head.body.size());
  }
  head.keep_alive(keep_alive_);
  bhttp::response_serializer<bhttp::string_body> serializer{head};
  serializer.split(true);
  error_code ec;
  while (!serializer.is_header_done() && !ec)
    serializer.next(ec, [&](error_code&, const auto& buffers) {
      serializer.consume(append_buffers(out_, buffers));
    });
  if (!p.stream && !head_only_) out_ += p.head.body;
}

void connection::write() {
  // What comes after it was taken wakes us again.
  for (bool taken = false;;) {
    if (out_sent_ == out_.size()) {
      if (std::exchange(taken, true) || !refill()) break;
    }
    if (stream_.encrypted()) return write_encrypted();
    error_code ec;
    const auto sent = stream_.socket().write_some(
        asio::buffer(out_.data() + out_sent_, out_.size() - out_sent_), ec);
    if (sent > 0) progress_ = clock::now();
    out_sent_ += sent;
    if (ec == asio::error::would_block || ec == asio::error::try_again) {
      writing_ = true;
      stream_.socket().async_wait(asio::ip::tcp::socket::wait_write,
                                  [self = shared_from_this()](error_code wait_error) {
                                    self->writing_ = false;
                                    if (!wait_error) self->flush();
                                  });
      return;
    }
    if (ec) {
      lose("client_gone");
      return;
    }
  }
  if (last_portion_) on_answer_sent();
}

/// What is encrypted cannot be taken back: TLS says when a piece has left, and nothing is written
/// meanwhile.
void connection::write_encrypted() {
  writing_ = true;
  stream_.write_some(asio::buffer(out_.data() + out_sent_, out_.size() - out_sent_),
                     [self = shared_from_this()](error_code ec, std::size_t sent) {
                       self->writing_ = false;
                       if (self->phase_ != phase::answering) return;
                       if (ec) return self->lose("client_gone");
                       self->progress_ = clock::now();
                       self->out_sent_ += sent;
                       self->write();
                     });
}

void connection::on_answer_sent() {
  const bool go_on = keep_alive_ && !giving_up_ && !server_.draining();
  end_answer();
  if (!go_on) {
    linger();
    return;
  }
  phase_ = phase::reading;
  since_ = clock::now();
  deadline_ = since_ + server_.limits().idle_timeout;
  // Not from here: the next request's answer may be ready at once, and so on, as deep as a client
  // sends ahead.
  asio::post(server_.io(), [self = shared_from_this()] {
    if (self->phase_ == phase::reading) self->process();
  });
}

void connection::end_answer() {
  answer_->close();
  answer_->on_gone(nullptr);
  answer_.reset();
  out_.clear();
  if (out_.capacity() > out_bytes_kept_max) out_ = {};
  spare_ = {};
  out_sent_ = 0;
  server_.answer_done();
}

void connection::linger() {
  phase_ = phase::lingering;
  deadline_ = clock::now() + linger_timeout;
  stream_.shut_down_sending([self = shared_from_this()](error_code) {});
  if (end_of_input_)
    close();
  else
    process();
}

// -- ends -----------------------------------------------------------------------------------------

void connection::lose(const char* reason) {
  if (answer_ && answer_->has_gone_handler()) {
    server_.events().refused(reason);
    answer_->close();  // first: nobody reads what the request says at its end
    answer_->gone(reason);
  }
  close();
}

void connection::close() {
  if (phase_ == phase::closed) return;
  phase_ = phase::closed;
  if (answer_) end_answer();
  drop_parser();
  error_code ignored;
  stream_.socket().close(ignored);
  server_.closed(shared_from_this());
}

void connection::abandon(const openai::api_error& why) {
  if (phase_ != phase::answering) return;
  const auto keep = shared_from_this();
  giving_up_ = true;
  deadline_ = clock::now() + last_words_timeout;
  answer_->abandon(why);
  answer_->gone(why.code);
  flush();
}

void connection::stalled() {
  server_.events().refused("client_stalled");
  abandon(
      make_error(408, "client_stalled",
                 "The client did not read the answer for too long; the request was cancelled."));
}

bool connection::deadline_passed(clock::time_point now) {
  if (phase_ != phase::answering) return now >= deadline_;
  if (giving_up_) return now >= deadline_;
  const auto limit = server_.limits().stalled_client_timeout;
  if (!answer_->full())
    full_since_.reset();
  else if (!full_since_)
    full_since_ = now;
  const bool full_too_long = full_since_ && now - *full_since_ >= limit;
  // An answer that is complete has nobody to cancel; it just waits for a client that reads.
  const bool stuck = writing_ && answer_->ended() && now - progress_ >= limit;
  return answer_->overflowed() || full_too_long || stuck;
}

void connection::sweep(clock::time_point now) {
  if (phase_ == phase::closed || !deadline_passed(now)) return;
  if (phase_ == phase::answering) {
    if (giving_up_ || !answer_->has_gone_handler() || answer_->ended())
      lose("client_stalled");
    else
      stalled();
    return;
  }
  if (phase_ == phase::reading && parser_)
    refuse(408, "request_timeout",
           header_seen_ ? "The body did not arrive in time."
                        : "The headers did not arrive in time.");
  else
    close();
}

}  // namespace troupe::gateway::http
