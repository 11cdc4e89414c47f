#include "actors/gateway/sinks.hpp"

#include "actors/gateway/openai/chunk_encoder.hpp"
#include "actors/gateway/openai/whole_answer.hpp"
#include "actors/gateway/rate_headers.hpp"

#include <chrono>
#include <utility>

namespace troupe::gateway {

namespace {

using clock = std::chrono::steady_clock;

/// For a client whose request was lost inside this node: the pause before it tries again.
constexpr std::chrono::milliseconds lost_retry_after{1'000};

/// What both kinds share: counting, and the request's open count, which ends with the sink. A sink
/// that goes without having been told an end stands for a request that was lost, in whatever
/// mailbox: its client hears of it all the same.
class sink_base : public request::client_sink {
 public:
  sink_base(answer_options options, std::shared_ptr<http::responder> to,
            std::shared_ptr<metrics> counts)
      : options_(std::move(options)), to_(std::move(to)), counts_(std::move(counts)) {
    counts_->request_opened();
  }
  ~sink_base() override {
    if (!ended_) lose();
    counts_->request_closed();
  }
  sink_base(const sink_base&) = delete;
  sink_base& operator=(const sink_base&) = delete;

  void on_standing(const request::rate_standing& at) override {
    for (auto& h : rate_headers(at)) options_.headers.push_back(std::move(h));
  }

 protected:
  std::size_t choice_of(std::uint16_t prompt, std::uint16_t choice) const {
    return std::size_t{prompt} * options_.choices + choice;
  }
  std::size_t choices() const { return options_.prompts * options_.choices; }
  bool in_range(std::uint16_t prompt, std::uint16_t choice) const {
    return prompt < options_.prompts && choice < options_.choices;
  }
  void count_first(msg::StreamDelta::Reader d) {
    if (counted_first_ || d.getIds().size() == 0) return;
    counted_first_ = true;
    counts_->first_token_after(clock::now() - began_);
  }
  void count_end(const request::totals& sum) {
    ended_ = true;
    counts_->request_took(clock::now() - began_);
    counts_->tokens(sum.prompt_tokens, sum.cached_tokens, sum.completion_tokens);
    counts_->answered(options_.route, 200);
  }
  void count_failure(const openai::api_error& e) {
    ended_ = true;
    counts_->answered(options_.route, static_cast<unsigned>(e.status));
  }

  answer_options options_;
  std::shared_ptr<http::responder> to_;
  std::shared_ptr<metrics> counts_;

 private:
  /// Nothing happens when the client has gone, which is how a cancelled request ends.
  void lose() {
    const auto e = to_api_error(
        {.http_status = 503,
         .code = "request_lost",
         .message = "The request was lost inside the server before it was done; send it again.",
         .parameter = {},
         .retry_after = lost_retry_after});
    if (!to_->abandon(e, options_.headers)) return;
    count_failure(e);
    counts_->lost(e.code);
  }

  clock::time_point began_ = clock::now();
  bool ended_ = false;
  bool counted_first_ = false;
};

class stream_sink final : public sink_base {
 public:
  stream_sink(answer_options options, std::shared_ptr<http::responder> to,
              std::shared_ptr<metrics> counts)
      : sink_base(std::move(options), std::move(to), std::move(counts)),
        encoder_(options_.who, options_.include_usage, options_.logprobs, choices()) {}

  void on_accepted(std::uint16_t prompt, std::uint32_t, std::uint32_t,
                   const std::string& echo_text) override {
    if (!std::exchange(started_, true)) to_->start_stream(options_.headers);
    to_->append([&](std::string& out) {
      for (std::uint16_t c = 0; c < options_.choices; ++c)
        encoder_.begin(out, choice_of(prompt, c), echo_text);
    });
  }

  void on_delta(std::uint16_t prompt, msg::StreamDelta::Reader d) override {
    if (!in_range(prompt, d.getChoice())) return;
    count_first(d);
    to_->append(
        [&](std::string& out) { encoder_.delta(out, choice_of(prompt, d.getChoice()), d); });
  }

  void on_finished(const request::totals& sum) override {
    count_end(sum);
    to_->append([&](std::string& out) { encoder_.end(out, sum); });
    to_->finish();
  }

  void on_failed(const request::failure& why) override {
    const auto e = to_api_error(why);
    count_failure(e);
    if (!started_) {
      to_->send(http::error_reply(e, options_.headers));
      return;
    }
    to_->append([&](std::string& out) { openai::chunk_encoder::error(out, e); });
    to_->finish();
  }

 private:
  openai::chunk_encoder encoder_;
  bool started_ = false;
};

class whole_sink final : public sink_base {
 public:
  whole_sink(answer_options options, std::shared_ptr<http::responder> to,
             std::shared_ptr<metrics> counts)
      : sink_base(std::move(options), std::move(to), std::move(counts)),
        answer_(options_.who, options_.logprobs, choices()) {}

  void on_accepted(std::uint16_t prompt, std::uint32_t, std::uint32_t,
                   const std::string& echo_text) override {
    if (!in_range(prompt, 0)) return;
    for (std::uint16_t c = 0; c < options_.choices; ++c)
      answer_.begin(choice_of(prompt, c), echo_text);
  }

  void on_delta(std::uint16_t prompt, msg::StreamDelta::Reader d) override {
    if (!in_range(prompt, d.getChoice()) || answer_.bytes() > whole_answer_bytes_max) return;
    count_first(d);
    answer_.delta(choice_of(prompt, d.getChoice()), d);
  }

  void on_finished(const request::totals& sum) override {
    if (answer_.bytes() > whole_answer_bytes_max) {
      on_failed({.http_status = 500,
                 .code = "answer_too_large",
                 .message = "The answer is too large to be held; ask for a stream.",
                 .parameter = "stream"});
      return;
    }
    count_end(sum);
    http::reply r;
    r.body = answer_.encode(sum);
    r.headers = options_.headers;
    to_->send(std::move(r));
  }

  void on_failed(const request::failure& why) override {
    const auto e = to_api_error(why);
    count_failure(e);
    to_->send(http::error_reply(e, options_.headers));
  }

 private:
  openai::whole_answer answer_;
};

}  // namespace

openai::api_error to_api_error(const request::failure& why) {
  // A worker's word is not trusted to be a status of HTTP, let alone of an error.
  const int status = why.http_status >= 400 && why.http_status <= 599 ? why.http_status : 500;
  auto e = openai::make_error(status, why.code.empty() ? "internal_error" : why.code,
                              why.message.empty() ? "The request failed." : why.message,
                              why.parameter);
  e.retry_after = why.retry_after;
  return e;
}

std::shared_ptr<request::client_sink> make_stream_sink(answer_options options,
                                                       std::shared_ptr<http::responder> to,
                                                       std::shared_ptr<metrics> counts) {
  return std::make_shared<stream_sink>(std::move(options), std::move(to), std::move(counts));
}

std::shared_ptr<request::client_sink> make_whole_sink(answer_options options,
                                                      std::shared_ptr<http::responder> to,
                                                      std::shared_ptr<metrics> counts) {
  return std::make_shared<whole_sink>(std::move(options), std::move(to), std::move(counts));
}

}  // namespace troupe::gateway
