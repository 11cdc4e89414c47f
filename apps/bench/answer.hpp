#pragma once

#include "apps/bench/histogram.hpp"
#include "apps/bench/sse.hpp"

#include <simdjson.h>
#include <xxhash.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::bench {

using std::chrono::nanoseconds;

/// A longer body of an answer that is not streamed is a fault of the server.
inline constexpr std::size_t body_bytes_max = 64U << 20U;

/// What one request came to. Times count from the request's intended time.
struct outcome {
  std::string error;    ///< empty: whole; else its kind: `http_503`, `broken_stream`, `no_done`,
                        ///< `error_event`, ...
  std::string message;  ///< what the server or the network said, cut short
  nanoseconds sent{0};
  std::optional<nanoseconds> first_token;
  nanoseconds last_token{0};
  nanoseconds end{0};
  std::uint64_t token_events = 0;  ///< events of the stream that brought text
  std::optional<std::uint64_t> completion_tokens;
  std::optional<std::uint64_t> prompt_tokens;
  std::uint64_t cached_tokens = 0;
  /// What a refusal says that the client should wait, in seconds.
  std::optional<double> retry_after_s;
  std::uint64_t text_digest =
      0;  ///< XXH3 of the text of all choices, in the order in which it came

  /// By the server's count, or else by events.
  std::uint64_t tokens() const { return completion_tokens.value_or(token_events); }
};

/// Reads one answer, streamed or not, as its bytes come in, and judges whether it was whole. Time
/// comes from the caller.
class answer_reader {
 public:
  /// `parser` may serve many readers, one at a time. `gaps` gets the times between tokens of a
  /// stream.
  answer_reader(simdjson::dom::parser& parser, histogram* gaps);

  /// The headers are in. A stream is one where the server says so; errors are never streams.
  /// `retry_after` is that header's value; a date counts as nothing.
  void on_header(unsigned status, bool event_stream, std::string_view retry_after = {});
  /// `now` counts from the intended time.
  void on_body(std::string_view bytes, nanoseconds now);
  /// The body ended as it should have.
  outcome finish(nanoseconds now);
  /// The connection broke, or time ran out: `error` is the kind.
  outcome fail(std::string error, std::string message, nanoseconds now);

  /// Whether anything of the answer has come in.
  bool started() const { return started_; }
  /// A fault that makes the rest of the stream useless; the caller hangs up and calls `finish`.
  bool broken() const { return broken_; }

 private:
  void on_event(std::string_view data, nanoseconds now);
  void on_document(const simdjson::dom::element& root, nanoseconds now);
  bool reads_choices(const simdjson::dom::element& root);
  void note_error(std::string kind, std::string_view message);
  void note_error_object(std::string_view kind, const simdjson::dom::element& root);
  void finish_plain(nanoseconds now);
  void digest(const simdjson::dom::element& choice);

  simdjson::dom::parser& parser_;
  histogram* gaps_;
  sse_splitter events_;
  std::string body_;
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> text_;
  outcome result_;
  unsigned status_ = 0;
  bool event_stream_ = false;
  bool started_ = false;
  bool broken_ = false;
  bool done_ = false;
  bool finished_ = false;
};

}  // namespace troupe::bench
