#pragma once

#include "apps/bench/answer.hpp"
#include "apps/bench/http_target.hpp"
#include "apps/bench/plan.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace troupe::bench {

using clock = std::chrono::steady_clock;
using tcp = boost::asio::ip::tcp;
namespace http = boost::beast::http;

/// A response's body that goes to an `answer_reader` as it comes in, and is kept nowhere.
struct answer_body {
  struct value_type {
    answer_reader* answer = nullptr;
    clock::time_point intended;
  };

  class reader {
   public:
    // Made before the header is read, so this only keeps where to look.
    template <bool IsRequest, class Fields>
    reader(http::header<IsRequest, Fields>& header, value_type& value)
        : value_(value), announce_([&header, &value] {
            const auto retry_after = header[http::field::retry_after];
            value.answer->on_header(
                header.result_int(),
                header[http::field::content_type].starts_with("text/event-stream"),
                {retry_after.data(), retry_after.size()});
          }) {}

    void init(const boost::optional<std::uint64_t>&, boost::beast::error_code& ec) {
      ec = {};
      announce_();
    }

    template <class Buffers>
    std::size_t put(const Buffers& buffers, boost::beast::error_code& ec) {
      ec = {};
      const auto now = clock::now() - value_.intended;
      std::size_t bytes = 0;
      for (auto i = boost::asio::buffer_sequence_begin(buffers);
           i != boost::asio::buffer_sequence_end(buffers); ++i) {
        const boost::asio::const_buffer piece{*i};
        value_.answer->on_body({static_cast<const char*>(piece.data()), piece.size()}, now);
        bytes += piece.size();
      }
      return bytes;
    }

    void finish(boost::beast::error_code& ec) { ec = {}; }

   private:
    value_type& value_;
    std::function<void()> announce_;
  };
};

/// One request on its way: what was planned, and when it counts from.
struct job {
  planned_request planned;
  clock::time_point intended;
  clock::time_point sent;
  http::request<http::string_body> message;
};

class connection;

/// Who gives a connection its jobs. All calls come from the io_context's thread.
class connection_owner {
 public:
  /// `c` may take its next job, unless it is closed. `planned` ends with that.
  virtual void on_answer(const std::shared_ptr<connection>& c, const planned_request& planned,
                         outcome o) = 0;
  /// `c` is closed, and the server had not seen the job; it may go on another connection.
  virtual void on_stale(const std::shared_ptr<connection>& c, job j) = 0;

 protected:
  ~connection_owner() = default;
};

/// A keep-alive connection that carries one request at a time. Lives as long as an operation of it
/// is under way.
class connection : public std::enable_shared_from_this<connection> {
 public:
  connection(boost::asio::io_context& io, const http_target& target,
             const tcp::resolver::results_type& addresses, simdjson::dom::parser& json,
             connection_owner& owner);

  /// Sends a job; the connection is idle. `gaps` gets the times between its tokens.
  void send(job j, histogram* gaps);
  /// Ends the job under way as an error of this kind, and closes.
  void abort(std::string kind, std::string message);
  /// Closes without a word.
  void drop();

  bool closed() const { return closed_; }
  bool busy() const { return busy_; }
  clock::time_point intended() const { return job_.intended; }

 private:
  void connect();
  void greet();
  void write();
  void read();
  void on_read(boost::beast::error_code ec);
  void on_failure(const char* kind, const std::string& message);
  void finish(outcome o, bool keep);
  nanoseconds since_intended() const { return clock::now() - job_.intended; }

  tcp::socket socket_;
  const http_target& target_;
  std::optional<boost::asio::ssl::stream<tcp::socket&>> tls_;  ///< where it is https
  const tcp::resolver::results_type& addresses_;
  simdjson::dom::parser& json_;
  connection_owner& owner_;
  boost::beast::flat_buffer buffer_;
  job job_;  ///< kept until the next one, since an operation that was broken off may still look at
             ///< its message
  std::optional<answer_reader> answer_;
  std::optional<http::response_parser<answer_body>> parser_;
  std::uint64_t answers_ = 0;
  bool busy_ = false;
  bool closed_ = false;
};

}  // namespace troupe::bench
