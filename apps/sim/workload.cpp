#include "apps/sim/workload.hpp"

#include "actors/workers/job.hpp"
#include "gpu/engine/make_engine.hpp"
#include "gpu/engine/simulated/simulated_runner.hpp"
#include "gpu/text/byte_text_model.hpp"
#include "gpu/text/text_model.hpp"
#include "messages/finish_reason.hpp"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace troupe::sim {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t shapes = 96;
constexpr std::size_t block_bytes = 512;  ///< of a prompt's chain

/// Prompts of one family share their beginning, so that prefixes are found again.
std::string make_prompt(seeded& random) {
  const auto family = random.below(6);
  seeded words{family, 77};
  std::string text;
  const auto shared = family < 3 ? std::size_t{0} : 300 + 250 * static_cast<std::size_t>(family);
  while (text.size() < shared) text += static_cast<char>('a' + words.below(26));
  const auto own = random.chance(0.15) ? 300 + random.index(500) : 5 + random.index(120);
  for (std::size_t i = 0; i < own; ++i)
    text += random.chance(0.2) ? ' ' : static_cast<char>('a' + random.below(26));
  return text;
}

std::shared_ptr<const request::prompt_content> content_of(const request_shape& s) {
  capnp::MallocMessageBuilder b;
  auto c = b.initRoot<msg::Completion>();
  c.setModel("m");
  c.getPrompt().setText(s.prompt);
  c.setMaxTokens(s.max_tokens);
  c.setChoices(s.choices);
  auto sampling = c.initSampling();
  sampling.setTemperature(s.temperature);
  sampling.setSeed(s.seed);
  auto stops = c.initStop(static_cast<unsigned>(s.stops.size()));
  for (unsigned i = 0; i < stops.size(); ++i) stops.set(i, s.stops[i]);
  auto content = std::make_shared<request::prompt_content>();
  content->words = capnp::messageToFlatArray(b);
  // Chained as a gateway does, with any hash.
  std::uint64_t h = 17;
  for (std::size_t at = 0; at + block_bytes <= s.prompt.size(); at += block_bytes) {
    for (std::size_t i = 0; i < block_bytes; ++i)
      h = (h ^ static_cast<unsigned char>(s.prompt[at + i])) * 0x100000001B3ULL;
    content->chain.push_back(h);
  }
  return content;
}

/// Collects one job's answer.
struct collector final : engine::event_sink {
  std::vector<expected_choice> all;
  bool done = false;

  void on_import_ready(engine::job_id, engine::position) override {}
  std::unique_ptr<engine::piece_buffer> acquire_piece_buffer(engine::job_id, std::size_t) override {
    return nullptr;
  }
  void on_piece(engine::kv_piece) override {}
  void on_prefill_done(engine::job_id, engine::position, std::chrono::microseconds,
                       std::chrono::microseconds) override {}
  void on_adopted(engine::job_id) override {}
  void on_started(engine::job_id, engine::position) override {}
  void on_delta(engine::choice_delta d) override {
    auto& c = all.at(d.choice);
    c.ids.insert(c.ids.end(), d.ids.begin(), d.ids.end());
    c.text += d.text;
    if (d.why != engine::finish::none)
      c.why = d.why == engine::finish::stop ? msg::FinishReason::STOP : msg::FinishReason::LENGTH;
  }
  void on_done(engine::job_id, std::uint32_t, std::chrono::microseconds) override { done = true; }
  void on_failed(engine::job_failure f) override {
    throw std::logic_error("the reference failed: " + f.why.message);
  }
  void on_cancelled(engine::job_id) override {}
  void on_leaving(engine::job_id, std::vector<engine::token_id>, std::uint32_t) override {}
  void on_stays(engine::job_id, error) override {}
  void on_prefixes(std::span<const std::uint64_t>, std::span<const std::uint64_t>) override {}
};

void answer(request_shape& s) {
  const auto text = text::make_byte_text_model(context_tokens);
  engine::simulated_options o;
  o.model = "m";
  o.context_tokens = context_tokens;
  o.vocabulary = text->vocabulary();
  o.end_tokens = {text::byte_token_turn_end, text::byte_token_end};
  o.cells = 4 * context_tokens;
  engine::batching_limits limits;
  limits.kv_tokens = o.cells;
  auto engine = engine::make_batching_engine(std::make_unique<engine::simulated_runner>(o), text,
                                             limits);
  capnp::FlatArrayMessageReader reader{s.content->words};
  auto request = reader.getRoot<msg::Completion>();
  auto prompt = text->render(request);
  if (!prompt) {
    s.refusal = prompt.error().code;
    return;
  }
  auto spec = workers::make_generate_spec(request, prompt->tokens, prompt->plan, context_tokens);
  if (!spec) {
    s.refusal = spec.error().code;
    return;
  }
  spec->id = 1;
  collector sink;
  sink.all.resize(s.choices);
  if (auto submitted = engine->submit(*std::move(spec)); !submitted)
    throw std::logic_error(submitted.error().message);
  while (!sink.done) engine->step(sink);
  s.answer = std::move(sink.all);
}

std::vector<request_shape> make_catalogue() {
  std::vector<request_shape> all;
  seeded random{2'024, 5};
  for (std::size_t i = 0; i < shapes; ++i) {
    request_shape s;
    s.prompt = make_prompt(random);
    s.max_tokens = 1 + static_cast<std::uint32_t>(random.below(random.chance(0.2) ? 64 : 24));
    s.choices = random.chance(0.2) ? static_cast<std::uint16_t>(2 + random.below(2)) : 1;
    if (random.chance(0.15)) {
      s.temperature = 0.9F;
      s.seed = random.next();
    }
    if (random.chance(0.2)) s.stops = {"e ", "tt"};
    if (i % 48 == 47) s.prompt.resize(context_tokens + 100, 'x');
    s.content = content_of(s);
    answer(s);
    all.push_back(std::move(s));
  }
  return all;
}

}  // namespace

const std::vector<request_shape>& catalogue() {
  static const auto all = make_catalogue();
  return all;
}

std::vector<planned_request> plan_requests(seeded random, std::size_t count, std::size_t hosts,
                                           std::chrono::milliseconds during) {
  std::vector<planned_request> all;
  for (std::size_t i = 0; i < count; ++i) {
    planned_request r;
    r.shape = random.index(shapes);
    r.at = random.between(std::chrono::nanoseconds{0}, std::chrono::nanoseconds{during});
    r.host = random.index(hosts);
    if (random.chance(0.05)) r.timeout = random.between(300ms, 4'000ms);
    if (random.chance(0.06))
      r.leaves_after_tokens = 1 + static_cast<std::uint32_t>(random.below(10));
    else if (random.chance(0.04))
      r.leaves_after = random.between(1ms, 400ms);
    if (random.chance(0.3)) r.session = "s" + std::to_string(random.below(20));
    all.push_back(std::move(r));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  return all;
}

}  // namespace troupe::sim
