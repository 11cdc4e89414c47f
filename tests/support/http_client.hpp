#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::test {

/// Reads from a peer, with a limit on each read.
class buffered_reader {
 public:
  /// What came until `what` is in it, the peer closed, or the limit passed.
  std::string read_until(std::string_view what,
                         std::chrono::milliseconds limit = std::chrono::seconds(20));
  /// What came until the peer closed, or the limit passed.
  std::string read_all(std::chrono::milliseconds limit = std::chrono::seconds(20));

 protected:
  ~buffered_reader() = default;
  /// False: the peer closed, or the time has come; else there may be more in the buffer.
  virtual bool receive(std::chrono::steady_clock::time_point until) = 0;
  /// Waits for bytes. An interruption, by libFuzzer's alarm, say, is no end.
  static bool readable(int fd, std::chrono::steady_clock::time_point until);

  std::string buffer_;
};

/// A client that says exactly the bytes it is told to: what no well-behaved HTTP library would
/// send. Blocking, with a limit on each read.
class raw_client final : public buffered_reader {
 public:
  /// `receive_buffer_bytes`: small for a reader that is to stall; 0: the system's choice.
  explicit raw_client(std::uint16_t port, int receive_buffer_bytes = 0);
  ~raw_client();
  raw_client(const raw_client&) = delete;
  raw_client& operator=(const raw_client&) = delete;

  /// False: the peer closed.
  bool send(std::string_view bytes);
  /// One answer with Content-Length: head and body.
  std::string read_reply(std::chrono::milliseconds limit = std::chrono::seconds(20));
  void half_close();
  void close();
  /// The peer closed (after a read said so).
  bool closed() const { return closed_; }

 private:
  bool receive(std::chrono::steady_clock::time_point until) override;

  int fd_ = -1;
  bool closed_ = false;
};

/// The text of a request with Content-Length.
std::string post(std::string_view path, std::string_view body, std::string_view more_headers = {});
std::string get(std::string_view path);
/// The status code of an answer, or 0.
int status_of(const std::string& answer);

}  // namespace troupe::test
