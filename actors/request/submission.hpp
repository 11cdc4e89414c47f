#pragma once

#include "messages/base/expected.hpp"
#include "messages/completion.capnp.h"
#include "messages/job.capnp.h"
#include "messages/job_key.hpp"

#include <kj/array.h>

#include <capnp/common.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::request {

using msg::request_id;

/// One prompt of a request: a flat `msg::Completion`, kept for failover and sent in parts when it
/// is large. Immutable, shared.
struct prompt_content {
  kj::Array<capnp::word> words;
  std::vector<std::uint64_t> chain;  ///< byte-block chain of the canonical prompt
  std::size_t bytes() const { return words.size() * sizeof(capnp::word); }
};

struct totals {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;
  std::uint32_t completion_tokens = 0;
};

/// How a request ended badly, in the client's terms.
struct failure {
  int http_status = 500;
  std::string code;
  std::string message;
  std::string parameter;
  std::chrono::milliseconds retry_after{0};  ///< 0: none
};

/// Where a tenant stands with a model's guaranteed model units (MU).
struct rate_standing {
  double limit_per_minute = 0;         ///< MU
  double remaining = 0;                ///< MU that can be begun at once
  std::chrono::milliseconds reset{0};  ///< until all of the burst is there again
};

/// The client as a request actor sees it: the seam behind which HTTP lies. Called by one actor at a
/// time, never after `on_finished` or `on_failed`. Implementations must not block: they put bytes
/// into a bounded outbox and wake the I/O thread. When that outbox is full for too long they call
/// `desk::cancel`.
class client_sink {
 public:
  virtual ~client_sink() = default;
  /// Before anything else, at most once: for the headers of the answer.
  virtual void on_standing(const rate_standing& at) { (void)at; }
  /// Once for each prompt, before any delta of it. An HTTP status is sent only from here on.
  virtual void on_accepted(std::uint16_t prompt, std::uint32_t prompt_tokens,
                           std::uint32_t cached_tokens, const std::string& echo_text) = 0;
  virtual void on_delta(std::uint16_t prompt, msg::StreamDelta::Reader delta) = 0;
  /// Every choice of every prompt has its finish reason.
  virtual void on_finished(const totals& sum) = 0;
  /// Before the first `on_accepted`: a plain HTTP error. After: an explicit error event in the
  /// stream. A sink that is destroyed before it was told an end takes its request for lost, and
  /// tells the client.
  virtual void on_failed(const failure& why) = 0;
};

struct submission {
  request_id id;
  std::string external_id;         ///< X-Request-Id
  std::string tenant;              ///< empty: there are none
  std::uint64_t prefix_scope = 0;  ///< see `msg::Job`
  std::string model;
  std::vector<std::shared_ptr<const prompt_content>> prompts;
  std::uint16_t choices = 1;  ///< of each prompt
  std::uint32_t max_tokens = 0;
  std::chrono::milliseconds timeout{0};             ///< from here on, for all of it
  std::chrono::milliseconds waited{0};              ///< of it, until it could begin
  std::chrono::steady_clock::time_point arrived{};  ///< at the hub, by its clock
  std::string session;                              ///< sticky key, or empty
  std::shared_ptr<client_sink> client;
};

/// The node's request hub as the gateway's I/O threads see it. Thread-safe.
class desk {
 public:
  virtual ~desk() = default;
  /// Errors: `too_many_requests`, `prompt_memory_full`, `shutting_down`; then nothing is called on
  /// the client, which the caller tells itself.
  virtual expected<void> submit(submission s) = 0;
  /// The client went away or stalled: everything of this request is released.
  virtual void cancel(request_id id, std::string reason) = 0;
  /// How a recent or running request travelled, as JSON; empty when it is not known (any more).
  /// `of`: only if it is this tenant's; none: whosever.
  virtual std::string timeline_json(const std::string& external_id,
                                    const std::optional<std::string>& of = std::nullopt) = 0;
  /// What the workers last said of themselves, as JSON.
  virtual std::string workers_json() { return R"({"workers":[]})"; }
  /// Models with at least one ready route, and why the others have none.
  struct model_state {
    std::string name;
    bool ready = false;
    std::string reason;   ///< of a ready one: which engines are slow, if any
    bool failed = false;  ///< and not ready before somebody mends something
  };
  virtual std::vector<model_state> models() = 0;
};

}  // namespace troupe::request
