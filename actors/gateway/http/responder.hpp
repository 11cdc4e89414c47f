#pragma once

#include "actors/gateway/openai/api_error.hpp"

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace troupe::gateway::http {

using header_list = std::vector<std::pair<std::string, std::string>>;

/// A whole answer.
struct reply {
  unsigned status = 200;
  std::string body = {};
  std::string content_type = "application/json";
  header_list headers = {};
};

/// An error as a whole answer: OpenAI's shape, Retry-After where the error has one.
reply error_reply(const openai::api_error& e, header_list headers = {});

class responder;

/// Responders that have something to send. Whoever makes the first one dirty wakes the I/O thread,
/// at the end of its turn if that writes to many (`request::joint_wake`); the others of the same
/// batch find it woken. Thread-safe.
class wake_list : public std::enable_shared_from_this<wake_list> {
 public:
  /// `wake`: called from any thread, under a lock, after the list has stopped being empty.
  explicit wake_list(std::function<void()> wake) : wake_(std::move(wake)) {}
  void add(std::shared_ptr<responder> r);
  /// The I/O thread ends: nobody is woken any more.
  void shut();
  /// I/O thread.
  std::vector<std::shared_ptr<responder>> take();

 private:
  void wake();

  std::mutex mutex_;
  std::vector<std::shared_ptr<responder>> dirty_;
  bool shut_ = false;
  std::mutex waking_;  ///< not the other one, which the I/O thread needs first when it wakes
  std::function<void()> wake_;
};

/// The answer to one request, between whoever makes it (any thread, one at a time) and the I/O
/// thread that sends it: either one `reply`, or a stream of appended bytes in a bounded buffer.
class responder : public std::enable_shared_from_this<responder> {
 public:
  /// `buffer_bytes_max`: unsent bytes from which a client counts as stalled.
  responder(std::shared_ptr<wake_list> wake, std::size_t buffer_bytes_max)
      : wake_(std::move(wake)), buffer_bytes_max_(buffer_bytes_max) {}

  // -- any thread ---------------------------------------------------------------------------------

  /// The whole answer. Ignored when an answer has begun.
  void send(reply r);
  /// Begins a stream of server-sent events with status 200.
  void start_stream(header_list headers);
  /// Lets `write` append to the stream. Nothing happens once the client is gone, or has let so much
  /// gather that some was dropped: such a stream has a hole, and can only be abandoned.
  template <class Write>
  void append(Write&& write) {
    std::unique_lock lock{mutex_};
    if (closed_ || ended_ || overflowed_) return;
    const auto before = pending_.size();
    write(pending_);
    if (pending_.size() != before) mark(std::move(lock));
  }
  /// Nothing more comes.
  void finish();
  /// Ends an answer that cannot go on: what is unsent of a stream is dropped for an error event; an
  /// answer that has not begun becomes an error reply with `headers`. False: it has ended already.
  bool abandon(const openai::api_error& why, header_list headers = {});

  // -- I/O thread ---------------------------------------------------------------------------------

  /// Called at most once, when the client went away or stalled: `client_gone`, `client_stalled`.
  void on_gone(std::function<void(std::string)> f) { on_gone_ = std::move(f); }
  /// Who sends: called after something became ready.
  void on_output(std::function<void()> f) { on_output_ = std::move(f); }
  void output_ready() const {
    if (on_output_) on_output_();
  }
  bool has_gone_handler() const { return static_cast<bool>(on_gone_); }
  void gone(const std::string& reason);

  /// What there is to send.
  struct portion {
    bool begins = false;  ///< `head` is the answer's head, and with `stream` unset all of it
    bool stream = false;
    bool ended = false;  ///< nothing follows `bytes`
    reply head;
    std::string bytes;
  };
  /// `reuse`: an empty string whose memory the buffer takes over.
  portion take(std::string reuse);
  std::size_t pending_bytes() const;
  bool full() const { return pending_bytes() >= buffer_bytes_max_; }
  bool overflowed() const;
  bool ended() const;
  /// The connection is closed: whatever still comes is dropped.
  void close();

 private:
  void mark(std::unique_lock<std::mutex> lock);

  std::shared_ptr<wake_list> wake_;
  const std::size_t buffer_bytes_max_;
  mutable std::mutex mutex_;
  std::string pending_;
  reply head_;
  bool has_head_ = false;
  bool head_taken_ = false;
  bool stream_ = false;
  bool ended_ = false;
  bool closed_ = false;
  bool dirty_ = false;
  bool overflowed_ = false;  ///< bytes were dropped: nothing is sent any more but an error event
  std::function<void(std::string)> on_gone_;
  std::function<void()> on_output_;
};

}  // namespace troupe::gateway::http
