#include "apps/bench/answer.hpp"

#include <fmt/format.h>

#include <charconv>
#include <system_error>
#include <utility>

namespace troupe::bench {

namespace {

/// Of a server's message in the report.
constexpr std::size_t message_bytes_max = 200;

std::string_view text_at(const simdjson::dom::element& object, std::string_view key) {
  std::string_view text;
  if (object[key].get(text)) return {};
  return text;
}

/// Whether a choice of a chunk, or of a whole answer, brought anything that the model wrote.
bool has_output(const simdjson::dom::element& choice) {
  if (!text_at(choice, "text").empty()) return true;
  for (const auto* holder : {"delta", "message"}) {
    simdjson::dom::element part;
    if (choice[holder].get(part)) continue;
    for (const auto* key : {"content", "reasoning_content", "refusal"})
      if (!text_at(part, key).empty()) return true;
    simdjson::dom::array calls;
    if (!part["tool_calls"].get(calls) && calls.size() > 0) return true;
  }
  return false;
}

}  // namespace

answer_reader::answer_reader(simdjson::dom::parser& parser, histogram* gaps)
    : parser_(parser), gaps_(gaps), text_(XXH3_createState(), XXH3_freeState) {
  XXH3_64bits_reset(text_.get());
}

void answer_reader::note_error(std::string kind, std::string_view message) {
  // The first fault is the cause; what follows is its shadow.
  if (!result_.error.empty()) return;
  result_.error = std::move(kind);
  result_.message = std::string{message.substr(0, message_bytes_max)};
}

void answer_reader::note_error_object(std::string_view kind, const simdjson::dom::element& root) {
  simdjson::dom::element details;
  if (root["error"].get(details)) return note_error(std::string{kind}, "");
  std::string_view text;
  if (!details.get(text)) return note_error(std::string{kind}, text);
  const auto code = text_at(details, "code");
  const auto message = text_at(details, "message");
  note_error(std::string{kind},
             code.empty() ? std::string{message} : fmt::format("{}: {}", code, message));
}

void answer_reader::on_header(unsigned status, bool event_stream, std::string_view retry_after) {
  started_ = true;
  status_ = status;
  double wait_s = 0;
  const auto* end = retry_after.data() + retry_after.size();
  if (const auto [read, failure] = std::from_chars(retry_after.data(), end, wait_s);
      failure == std::errc{} && read == end)
    result_.retry_after_s = wait_s;
  event_stream_ = event_stream && status == 200;
}

void answer_reader::on_body(std::string_view bytes, nanoseconds now) {
  started_ = true;
  if (broken_) return;
  if (event_stream_) {
    if (!events_.feed(bytes, [&](std::string_view data) { on_event(data, now); })) {
      note_error("bad_stream", "an event is too long");
      broken_ = true;
    }
    return;
  }
  if (body_.size() + bytes.size() > body_bytes_max) {
    note_error("bad_answer", "the body is too long");
    broken_ = true;
    return;
  }
  body_ += bytes;
}

void answer_reader::on_event(std::string_view data, nanoseconds now) {
  if (data == "[DONE]") {
    done_ = true;
    return;
  }
  if (done_) return note_error("bad_stream", "an event after [DONE]");
  simdjson::dom::element root;
  if (parser_.parse(data.data(), data.size()).get(root))
    return note_error("bad_stream", "an event is not JSON");
  on_document(root, now);
}

void answer_reader::on_document(const simdjson::dom::element& root, nanoseconds now) {
  simdjson::dom::element failure;
  if (!root["error"].get(failure) && !failure.is_null())
    return note_error_object("error_event", root);
  if (!reads_choices(root)) return;
  if (result_.first_token && gaps_ != nullptr)
    gaps_->record(static_cast<std::uint64_t>((now - result_.last_token).count()));
  if (!result_.first_token) result_.first_token = now;
  result_.last_token = now;
  ++result_.token_events;
}

bool answer_reader::reads_choices(const simdjson::dom::element& root) {
  bool output = false;
  simdjson::dom::array choices;
  if (!root["choices"].get(choices))
    for (const auto choice : choices) {
      output = output || has_output(choice);
      digest(choice);
      finished_ = finished_ || !text_at(choice, "finish_reason").empty();
    }
  simdjson::dom::element usage;
  if (root["usage"].get(usage) || !usage.is_object()) return output;
  std::uint64_t n = 0;
  if (!usage["completion_tokens"].get(n)) result_.completion_tokens = n;
  if (!usage["prompt_tokens"].get(n)) result_.prompt_tokens = n;
  if (!usage["prompt_tokens_details"]["cached_tokens"].get(n)) result_.cached_tokens = n;
  return output;
}

/// Choices of a stream come interleaved: only answers with one have a digest to compare.
void answer_reader::digest(const simdjson::dom::element& choice) {
  const auto add = [this](std::string_view text) {
    XXH3_64bits_update(text_.get(), text.data(), text.size());
  };
  add(text_at(choice, "text"));
  for (const auto* holder : {"delta", "message"})
    if (simdjson::dom::element part; !choice[holder].get(part)) add(text_at(part, "content"));
}

void answer_reader::finish_plain(nanoseconds now) {
  simdjson::dom::element root;
  const bool json = !parser_.parse(body_).get(root);
  if (status_ != 200) {
    const auto kind = fmt::format("http_{}", status_);
    if (json)
      note_error_object(kind, root);
    else
      note_error(kind, body_);
    return;
  }
  if (!json) return note_error("bad_answer", "the body is not JSON");
  simdjson::dom::element failure;
  if (!root["error"].get(failure) && !failure.is_null())
    return note_error_object("error_body", root);
  if (reads_choices(root)) result_.token_events = 1;
  result_.last_token = now;
}

outcome answer_reader::finish(nanoseconds now) {
  if (!event_stream_ && !broken_) finish_plain(now);
  if (event_stream_ && events_.inside_event())
    note_error("broken_stream", "the stream ends inside an event");
  if (event_stream_ && !done_) note_error("no_done", "the stream ends without [DONE]");
  if (!finished_) note_error("no_finish_reason", "the answer has no finish reason");
  result_.text_digest = XXH3_64bits_digest(text_.get());
  result_.end = now;
  return std::move(result_);
}

outcome answer_reader::fail(std::string error, std::string message, nanoseconds now) {
  note_error(std::move(error), message);
  result_.end = now;
  return std::move(result_);
}

}  // namespace troupe::bench
