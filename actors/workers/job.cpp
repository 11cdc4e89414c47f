#include "actors/workers/job.hpp"

#include <cstring>

namespace troupe::workers {

namespace {

error malformed(const std::string& why) {
  return {"content_malformed", "a job's content is malformed: " + why};
}

engine::sampling read_sampling(msg::Sampling::Reader in) {
  engine::sampling s;
  s.temperature = in.getTemperature();
  s.top_p = in.getTopP();
  s.top_k = in.getTopK();
  s.min_p = in.getMinP();
  s.seed = in.getSeed();
  s.presence_penalty = in.getPresencePenalty();
  s.frequency_penalty = in.getFrequencyPenalty();
  for (auto b : in.getLogitBias()) s.logit_bias.emplace_back(b.getToken(), b.getBias());
  return s;
}

}  // namespace

expected<content_assembly> content_assembly::begin(msg::Content::Reader content,
                                                   std::size_t bytes_max) {
  const std::size_t bytes = content.getBytes();
  if (bytes == 0 || bytes % sizeof(capnp::word) != 0)
    return malformed("it has " + std::to_string(bytes) + " bytes");
  if (bytes > bytes_max)
    return malformed(std::to_string(bytes) + " bytes are announced, the limit is " +
                     std::to_string(bytes_max));
  content_assembly a;
  a.words_ = kj::heapArray<capnp::word>(bytes / sizeof(capnp::word));
  if (auto in = content.getInline(); in.size() > 0)
    if (auto added = a.add(0, in); !added) return std::move(added).error();
  return a;
}

expected<void> content_assembly::add(std::uint32_t offset, kj::ArrayPtr<const kj::byte> bytes) {
  if (offset != received_)
    return malformed("a part begins at " + std::to_string(offset) + ", " +
                     std::to_string(received_) + " bytes are here");
  if (bytes.size() > words_.size() * sizeof(capnp::word) - received_)
    return malformed("a part goes beyond the end");
  std::memcpy(reinterpret_cast<kj::byte*>(words_.begin()) + received_, bytes.begin(), bytes.size());
  received_ += bytes.size();
  return ok;
}

expected<void> check_context(msg::Completion::Reader request, std::size_t prompt_tokens,
                             engine::position context) {
  const auto wanted = request.getMaxTokens();
  if (prompt_tokens < context && wanted <= context - prompt_tokens) return ok;
  return error{"context_length_exceeded",
               "This model's context holds " + std::to_string(context) +
                   " tokens; the prompt has " + std::to_string(prompt_tokens) +
                   (wanted > 0 ? " and " + std::to_string(wanted) + " are wanted as answer" : "") +
                   ". Shorten one of them.",
               prompt_tokens >= context ? (request.getPrompt().isMessages() ? "messages" : "prompt")
                                        : "max_tokens"};
}

expected<engine::generate_spec> make_generate_spec(msg::Completion::Reader request,
                                                   std::vector<engine::token_id> tokens,
                                                   engine::output_plan plan,
                                                   engine::position context) {
  if (auto fits = check_context(request, tokens.size(), context); !fits)
    return std::move(fits).error();
  engine::generate_spec s;
  const auto room = context - static_cast<engine::position>(tokens.size());
  const auto wanted = request.getMaxTokens();
  s.max_tokens = wanted == 0 ? room : wanted;
  s.tokens = std::move(tokens);
  s.choices = request.getChoices();
  s.how = read_sampling(request.getSampling());
  s.plan = std::move(plan);
  for (auto stop : request.getStop()) s.stops.emplace_back(stop.cStr(), stop.size());
  s.logprobs = request.getLogprobs();
  s.top_logprobs = request.getTopLogprobs();
  s.ignore_end = request.getIgnoreEos();
  return s;
}

std::vector<engine::resumed_choice> read_resume(msg::Resume::Reader in) {
  std::vector<engine::resumed_choice> all;
  for (auto c : in.getChoices()) {
    engine::resumed_choice r;
    for (auto id : c.getIds()) r.ids.push_back(id);
    r.emitted_bytes = c.getEmittedBytes();
    r.done = c.getDone();
    all.push_back(std::move(r));
  }
  return all;
}

}  // namespace troupe::workers
