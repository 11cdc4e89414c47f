#include "actors/gateway/http/responder.hpp"

#include "actors/gateway/http/limits.hpp"
#include "actors/gateway/openai/chunk_encoder.hpp"
#include "actors/gateway/openai/encode.hpp"
#include "actors/request/joint_wake.hpp"

#include <chrono>

namespace troupe::gateway::http {

reply error_reply(const openai::api_error& e, header_list headers) {
  reply r;
  r.status = static_cast<unsigned>(e.status);
  r.body = openai::encode_error(e);
  r.headers = std::move(headers);
  if (e.retry_after.count() > 0) {
    // The header has whole seconds: too early would only be refused again.
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(e.retry_after).count();
    r.headers.emplace_back("Retry-After", std::to_string(seconds));
    r.headers.emplace_back("retry-after-ms", std::to_string(e.retry_after.count()));
  }
  return r;
}

void wake_list::add(std::shared_ptr<responder> r) {
  {
    const std::lock_guard lock{mutex_};
    if (shut_) return;
    dirty_.push_back(std::move(r));
    if (dirty_.size() > 1) return;
  }
  troupe::request::joint_wake::at_end([self = shared_from_this()] { self->wake(); });
}

void wake_list::wake() {
  const std::lock_guard lock{waking_};
  if (wake_) wake_();
}

void wake_list::shut() {
  {
    const std::lock_guard lock{waking_};
    wake_ = nullptr;
  }
  const std::lock_guard lock{mutex_};
  shut_ = true;
  dirty_.clear();
}

std::vector<std::shared_ptr<responder>> wake_list::take() {
  const std::lock_guard lock{mutex_};
  return std::exchange(dirty_, {});
}

void responder::mark(std::unique_lock<std::mutex> lock) {
  // The last words of an abandoned one are few, and not counted.
  if (stream_ && !ended_ && pending_.size() > overflow_factor * buffer_bytes_max_) {
    overflowed_ = true;
    pending_.clear();
  }
  if (dirty_) return;
  dirty_ = true;
  lock.unlock();
  wake_->add(shared_from_this());
}

void responder::send(reply r) {
  std::unique_lock lock{mutex_};
  if (closed_ || has_head_) return;
  has_head_ = true;
  ended_ = true;
  head_ = std::move(r);
  mark(std::move(lock));
}

void responder::start_stream(header_list headers) {
  std::unique_lock lock{mutex_};
  if (closed_ || has_head_) return;
  has_head_ = true;
  stream_ = true;
  head_.headers = std::move(headers);
  head_.content_type = "text/event-stream; charset=utf-8";
  mark(std::move(lock));
}

void responder::finish() {
  std::unique_lock lock{mutex_};
  if (closed_ || ended_ || overflowed_) return;
  ended_ = true;
  mark(std::move(lock));
}

void responder::gone(const std::string& reason) {
  if (auto f = std::exchange(on_gone_, nullptr)) f(reason);
}

responder::portion responder::take(std::string reuse) {
  const std::lock_guard lock{mutex_};
  dirty_ = false;
  portion p;
  if (!has_head_ || overflowed_) return p;
  p.begins = !std::exchange(head_taken_, true);
  p.stream = stream_;
  if (p.begins) p.head = std::move(head_);
  p.bytes = std::exchange(pending_, std::move(reuse));
  p.ended = ended_;
  return p;
}

std::size_t responder::pending_bytes() const {
  const std::lock_guard lock{mutex_};
  return pending_.size();
}

bool responder::overflowed() const {
  const std::lock_guard lock{mutex_};
  return overflowed_;
}

bool responder::ended() const {
  const std::lock_guard lock{mutex_};
  return ended_;
}

bool responder::abandon(const openai::api_error& why, header_list headers) {
  std::unique_lock lock{mutex_};
  if (closed_ || ended_) return false;
  if (!has_head_) {
    has_head_ = true;
    head_ = error_reply(why, std::move(headers));
  } else {
    pending_.clear();
    openai::chunk_encoder::error(pending_, why);
  }
  overflowed_ = false;
  ended_ = true;
  mark(std::move(lock));
  return true;
}

void responder::close() {
  const std::lock_guard lock{mutex_};
  closed_ = true;
  pending_ = {};
}

}  // namespace troupe::gateway::http
