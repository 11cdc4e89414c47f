#pragma once

#include "actors/gateway/http/client_stream.hpp"
#include "actors/gateway/http/responder.hpp"
#include "actors/gateway/http/server_impl.hpp"

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace troupe::gateway::http {

/// One client. Reads all the time, also while it answers, so that a client that goes away is
/// noticed at once; requests sent ahead wait in the buffer, or are thrown away where they are too
/// many bytes. Lives on the I/O thread only; keeps
/// itself alive until closed. A client that shuts down its sending side while a model works for it
/// counts as gone (a client that closes looks the same).
class connection : public std::enable_shared_from_this<connection> {
 public:
  using clock = std::chrono::steady_clock;

  connection(server::impl& s, client_stream stream);

  void start();
  /// Instead of `start`: there is no room. Says so, and ends.
  void turn_away();
  bool turned_away() const { return turned_away_; }
  /// The responder has something to send.
  void flush();
  /// Looks at deadlines.
  void sweep(clock::time_point now);
  void close();
  /// No request begun and none being answered; a handshake is no request yet.
  bool idle() const { return phase_ == phase::greeting || (phase_ == phase::reading && !parser_); }
  bool answering() const { return phase_ == phase::answering; }
  clock::time_point since() const { return since_; }
  /// The server ends: an open answer gets an error.
  void abandon(const openai::api_error& why);

 private:
  enum class phase : std::uint8_t { greeting, reading, answering, lingering, closed };
  using parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  /// The parser's callback for each chunk's header: what the extensions of a body may still have.
  struct chunk_budget {
    std::uint64_t extension_bytes_left = 0;
    void operator()(std::uint64_t size, boost::beast::string_view extensions,
                    boost::system::error_code& ec);
  };

  void greet();
  void on_greeted(boost::system::error_code ec);
  void read();
  void on_read(boost::system::error_code ec, std::size_t bytes);
  void on_end_of_input();
  void discard_ahead();
  void process();
  bool parse();
  bool on_header();
  bool check_header_count();
  bool check_encoding();
  bool take_body(std::uint64_t bytes);
  void drop_parser();
  void dispatch();
  void refuse(const openai::api_error& why);
  void refuse(int status, const char* code, std::string message,
              std::chrono::milliseconds retry_after = std::chrono::milliseconds{0});
  void begin_answer();
  bool refill();
  void add_head(responder::portion& p);
  void go_on();
  void write();
  void write_encrypted();
  void on_answer_sent();
  void end_answer();
  void linger();
  void lose(const char* reason);
  void stalled();
  bool deadline_passed(clock::time_point now);

  server::impl& server_;
  client_stream stream_;
  boost::beast::flat_buffer buffer_;
  std::optional<parser> parser_;
  chunk_budget on_chunk_;
  std::uint64_t body_bytes_ = 0;  // taken from the server's, for the parser's body
  std::shared_ptr<responder> answer_;
  phase phase_ = phase::reading;
  clock::time_point deadline_;
  clock::time_point since_;
  clock::time_point progress_;                   // of writing
  std::optional<clock::time_point> full_since_;  // the responder's buffer
  std::string out_;                              // framed bytes on their way
  std::string spare_;                            // empty: memory for the responder's next bytes
  std::size_t out_sent_ = 0;
  std::size_t discarded_bytes_ = 0;
  unsigned version_ = 11;
  bool header_seen_ = false;
  bool reading_ = false;  // a read is under way
  bool writing_ = false;  // a wait for room is under way
  bool end_of_input_ = false;
  bool discarding_ = false;  // what comes: the client has sent too far ahead
  bool head_only_ = false;
  bool keep_alive_ = true;
  bool chunked_ = false;
  bool last_portion_ = false;  // `out_` ends the answer
  bool turned_away_ = false;
  bool giving_up_ = false;  // stalled: only the last event is still sent
};

}  // namespace troupe::gateway::http
