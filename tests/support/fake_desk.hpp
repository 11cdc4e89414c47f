#pragma once

#include "actors/request/submission.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::test {

/// A desk without a cluster: answers with the words w0, w1, w2, ... at a pace. The model's name
/// says how:
///
/// | model | what happens |
/// |---|---|
/// | `words` | the answer, as long as max_tokens (8 where none is given), cut at a stop string |
/// | `refuse` | fails before it accepts: 429, `over_limit`, Retry-After 1500 ms |
/// | `break` | fails after three tokens: 500, `worker_lost` |
/// | `hang` | accepts, and says nothing more until it is cancelled |
/// | `silent` | says nothing at all until it is cancelled |
/// | `flood` | 4 KiB a token as fast as it goes, until it is cancelled |
/// | `lost` | is forgotten without a word, as by a mailbox of an actor that has died |
/// | `forgotten` | accepts, and is then forgotten |
/// | `late` | fails before it accepts the last prompt: 400, `context_length_exceeded` |
/// | `cold` | known, not ready |
class fake_desk final : public request::desk {
 public:
  explicit fake_desk(std::chrono::microseconds pace = std::chrono::microseconds{0}) : pace_(pace) {}
  ~fake_desk() override;

  expected<void> submit(request::submission s) override;
  void cancel(request::request_id id, std::string reason) override;
  std::string timeline_json(const std::string& external_id,
                            const std::optional<std::string>& of) override;
  std::vector<model_state> models() override;

  /// Waits until so many requests were cancelled; their reasons.
  std::vector<std::string> wait_cancelled(std::size_t count, std::chrono::milliseconds limit);
  /// Waits until so many have been submitted.
  bool wait_submitted(std::size_t count, std::chrono::milliseconds limit);
  request::submission last() const;
  void refuse_all(error why);

 private:
  struct job;
  void run(const std::shared_ptr<job>& j);
  void answer(job& j, std::uint16_t prompt, std::uint32_t& prompt_tokens,
              std::uint32_t& completion_tokens);
  bool wait(job& j, std::chrono::microseconds t);

  std::chrono::microseconds pace_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<job>> jobs_;
  std::vector<std::string> cancelled_;
  std::unique_ptr<error> refusal_;
  bool ending_ = false;
};

}  // namespace troupe::test
