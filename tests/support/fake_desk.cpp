#include "tests/support/fake_desk.hpp"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <algorithm>

namespace troupe::test {

using namespace std::chrono_literals;

struct fake_desk::job {
  request::submission s;
  bool cancelled = false;
  std::thread thread;
};

namespace {

void give(request::client_sink& to, std::uint16_t prompt, auto fill) {
  capnp::MallocMessageBuilder builder;
  auto d = builder.initRoot<msg::StreamDelta>();
  fill(d);
  to.on_delta(prompt, d.asReader());
}

void set_logprob(msg::StreamDelta::Builder d, const std::string& word, unsigned top) {
  auto list = d.initLogprobs(1);
  auto one = list[0];
  one.setBytes(kj::arrayPtr(reinterpret_cast<const kj::byte*>(word.data()), word.size()));
  one.setLogprob(-0.5F);
  auto others = one.initTop(top);
  for (unsigned i = 0; i < top; ++i) {
    others[i].setBytes(one.getBytes());
    others[i].setLogprob(-0.5F - static_cast<float>(i));
  }
}

}  // namespace

fake_desk::~fake_desk() {
  {
    const std::lock_guard lock{mutex_};
    ending_ = true;
    changed_.notify_all();
  }
  for (const auto& j : jobs_)
    if (j->thread.joinable()) j->thread.join();
}

expected<void> fake_desk::submit(request::submission s) {
  const std::lock_guard lock{mutex_};
  if (refusal_) return *refusal_;
  auto j = std::make_shared<job>();
  j->s = std::move(s);
  jobs_.push_back(j);
  j->thread = std::thread([this, j] { run(j); });
  changed_.notify_all();
  return ok;
}

void fake_desk::cancel(request::request_id id, std::string reason) {
  const std::lock_guard lock{mutex_};
  for (const auto& j : jobs_)
    if (j->s.id == id) j->cancelled = true;
  cancelled_.push_back(std::move(reason));
  changed_.notify_all();
}

std::string fake_desk::timeline_json(const std::string& external_id,
                                     const std::optional<std::string>& of) {
  const std::lock_guard lock{mutex_};
  const auto known = std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& j) {
    return j->s.external_id == external_id && (!of || j->s.tenant == *of);
  });
  return known ? R"({"status":"running"})" : "";
}

std::vector<request::desk::model_state> fake_desk::models() {
  std::vector<model_state> all;
  for (const auto* name : {"words", "refuse", "break", "hang", "silent", "flood", "org/words",
                           "lost", "forgotten", "late"})
    all.push_back({name, true, {}});
  all.push_back({"cold", false, "its engine is loading"});
  return all;
}

std::vector<std::string> fake_desk::wait_cancelled(std::size_t count,
                                                   std::chrono::milliseconds limit) {
  std::unique_lock lock{mutex_};
  changed_.wait_for(lock, limit, [&] { return cancelled_.size() >= count; });
  return cancelled_;
}

bool fake_desk::wait_submitted(std::size_t count, std::chrono::milliseconds limit) {
  std::unique_lock lock{mutex_};
  return changed_.wait_for(lock, limit, [&] { return jobs_.size() >= count; });
}

request::submission fake_desk::last() const {
  const std::lock_guard lock{mutex_};
  return jobs_.back()->s;
}

void fake_desk::refuse_all(error why) {
  const std::lock_guard lock{mutex_};
  refusal_ = std::make_unique<error>(std::move(why));
}

/// False: the job was cancelled.
bool fake_desk::wait(job& j, std::chrono::microseconds t) {
  std::unique_lock lock{mutex_};
  if (t.count() > 0) changed_.wait_for(lock, t, [&] { return j.cancelled || ending_; });
  return !j.cancelled && !ending_;
}

void fake_desk::answer(job& j, std::uint16_t prompt, std::uint32_t& prompt_tokens,
                       std::uint32_t& completion_tokens) {
  capnp::FlatArrayMessageReader reader{j.s.prompts[prompt]->words};
  const auto c = reader.getRoot<msg::Completion>();
  auto& to = *j.s.client;
  const auto model = j.s.model;
  std::string echo;
  if (c.getEcho() && c.getPrompt().isText())
    echo.assign(c.getPrompt().getText().begin(), c.getPrompt().getText().size());
  prompt_tokens += 11;
  to.on_accepted(prompt, 11, 3, echo);
  const auto words = c.getMaxTokens() == 0 ? 8U : c.getMaxTokens();
  for (std::uint16_t choice = 0; choice < c.getChoices(); ++choice) {
    if (c.getToolsJson().size() > 0 && c.getToolChoice() != msg::ToolChoice::NONE) {
      for (int part = 0; part < 2; ++part)
        give(to, prompt, [&](msg::StreamDelta::Builder d) {
          d.setChoice(choice);
          d.initIds(1);
          auto calls = d.initToolCalls(1);
          auto call = calls[0];
          if (part == 0) {
            call.setId("call_1");
            call.setName("get_weather");
          }
          call.setArguments(part == 0 ? "{\"city\":" : "\"Oslo\"}");
          if (part == 1) d.setFinish(msg::FinishReason::TOOL_CALLS);
        });
      completion_tokens += 2;
      continue;
    }
    if (c.getResponseFormat().isJsonSchema() || c.getResponseFormat().isJsonObject()) {
      give(to, prompt, [&](msg::StreamDelta::Builder d) {
        d.setChoice(choice);
        d.initIds(1);
        d.setText(R"({"answer":42})");
        d.setFinish(msg::FinishReason::STOP);
      });
      completion_tokens += 1;
      continue;
    }
    for (std::uint32_t i = 0; i < words; ++i) {
      if (!wait(j, pace_)) return;
      auto word = (i == 0 ? "w" : " w") + std::to_string(i);
      if (model == "flood") word.assign(4096, 'x');
      bool stopped = false;
      for (auto s : c.getStop()) stopped = stopped || word.find(s.cStr()) != std::string::npos;
      ++completion_tokens;
      give(to, prompt, [&](msg::StreamDelta::Builder d) {
        d.setChoice(choice);
        d.setFirstIndex(i);
        d.initIds(1).set(0, static_cast<std::int32_t>(i));
        if (!stopped) d.setText(word);
        if (c.getLogprobs()) set_logprob(d, word, c.getTopLogprobs());
        if (stopped)
          d.setFinish(msg::FinishReason::STOP);
        else if (i + 1 == words)
          d.setFinish(msg::FinishReason::LENGTH);
      });
      if (stopped) break;
      if (model == "break" && i == 2) return;
    }
  }
}

void fake_desk::run(const std::shared_ptr<job>& j) {
  auto& to = *j->s.client;
  const auto& model = j->s.model;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t completion_tokens = 0;
  if (model == "refuse") {
    to.on_failed({.http_status = 429,
                  .code = "over_limit",
                  .message = "Too much at once.",
                  .parameter = {},
                  .retry_after = 1'500ms});
  } else if (model == "silent" || model == "hang") {
    if (model == "hang") to.on_accepted(0, 11, 0, {});
    while (wait(*j, 1h)) {
    }
  } else if (model == "forgotten") {
    to.on_accepted(0, 11, 0, {});
  } else if (model != "lost") {
    const auto last = static_cast<std::uint16_t>(j->s.prompts.size() - (model == "late" ? 1 : 0));
    for (std::uint16_t p = 0; p < last; ++p) answer(*j, p, prompt_tokens, completion_tokens);
    if (model == "late")
      to.on_failed({.http_status = 400,
                    .code = "context_length_exceeded",
                    .message = "The second prompt is too long.",
                    .parameter = "prompt"});
    else if (model == "break")
      to.on_failed({.http_status = 500,
                    .code = "worker_lost",
                    .message = "The worker is lost.",
                    .parameter = {}});
    else if (wait(*j, 0us))
      to.on_finished({.prompt_tokens = prompt_tokens,
                      .cached_tokens = 3,
                      .completion_tokens = completion_tokens});
  }
  // What a request actor does when it ends: the client goes with it.
  const std::lock_guard lock{mutex_};
  j->s.client.reset();
}

}  // namespace troupe::test
