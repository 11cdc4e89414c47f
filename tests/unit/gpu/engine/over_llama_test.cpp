// The batching engine over llama.cpp and the tiny model: the same books, whatever is short.

#include "tests/unit/gpu/engine/engine_fixture.hpp"

#include "gpu/engine/llama/llama_runner.hpp"

#include <random>

using namespace troupe::engine;
using namespace troupe::engine::test;

namespace {

/// Enough of a text side: every token is its number.
class numbers final : public troupe::text::text_model {
 public:
  explicit numbers(const model_info& info)
      : info_(info), bytes_(troupe::text::make_byte_text_model(10)) {}
  troupe::expected<troupe::text::rendered_prompt> render(
      troupe::msg::Completion::Reader, const troupe::text::still_wanted&) const override {
    return troupe::error{"unused", {}, {}};
  }
  troupe::expected<std::vector<token_id>> tokenize(std::string_view, bool, bool) const override {
    return troupe::error{"unused", {}, {}};
  }
  std::string piece(token_id token) const override { return std::to_string(token) + " "; }
  bool is_end(token_id token) const override {
    return std::find(info_.end_tokens.begin(), info_.end_tokens.end(), token) !=
           info_.end_tokens.end();
  }
  std::uint32_t vocabulary() const override { return info_.vocabulary; }
  troupe::expected<std::unique_ptr<troupe::text::constraint>> make_constraint(
      const output_plan& plan) const override {
    return bytes_->make_constraint(plan);
  }
  std::unique_ptr<troupe::text::output_stream> make_output(
      const output_plan& plan, std::span<const std::string> stops) const override {
    return bytes_->make_output(plan, stops);
  }

 private:
  model_info info_;
  std::shared_ptr<const troupe::text::text_model> bytes_;
};

struct llama_rig {
  explicit llama_rig(batching_limits limits, slot_id slots = 12, engine_options options = {}) {
    llama_options model;
    model.path = TROUPE_TINY_GGUF;
    model.cells = limits.kv_tokens;
    model.slots = slots;
    model.step_tokens = limits.step_tokens;
    model.threads = 1;  // so small a model loses by more
    auto loaded = llama_runner::load(model);
    if (!loaded) FAIL(loaded.error().message);
    text = std::make_shared<numbers>((*loaded)->info());
    machine = make_batching_engine(std::move(*loaded), text, limits, options);
  }
  step_report step() {
    const auto report = machine->step(events);
    const auto audit = machine->audit();
    REQUIRE(audit.mismatches == std::vector<std::string>{});
    return report;
  }
  void run() {
    while (step().worked) {
    }
  }

  recorder events;
  std::shared_ptr<const troupe::text::text_model> text;
  std::unique_ptr<engine> machine;
};

std::vector<token_id> tokens_of(std::size_t count, unsigned salt) {
  std::vector<token_id> out;
  for (std::size_t i = 0; i < count; ++i)
    out.push_back(static_cast<token_id>(300 + (i * 31 + salt * 7) % 300));
  return out;
}

}  // namespace

TEST_CASE("over llama: apart and together give the same ids, piece by piece") {
  batching_limits limits;
  limits.kv_tokens = 1024;
  limits.step_tokens = 64;
  engine_options small;
  small.piece_bytes_max = 20'000;
  llama_rig together(limits);
  llama_rig p(limits, 12, small);
  llama_rig d(limits);
  for (job_id id = 1; id <= 3; ++id) {
    const auto prompt = tokens_of(static_cast<std::size_t>(id) * 97, static_cast<unsigned>(id));
    REQUIRE(together.machine->submit(generate(id, prompt, 32)));
    together.run();
    auto spec = generate(id, prompt, 32);
    spec.prefill_here = false;
    REQUIRE(p.machine->submit(prefill(id, prompt)));
    REQUIRE(d.machine->submit(spec));
    d.run();
    p.machine->grant_delivery(id, d.events.import_ready.at(id));
    p.run();
    for (auto& piece : p.events.pieces) d.machine->import_piece(std::move(piece));
    p.events.pieces.clear();
    d.run();
    REQUIRE(d.events.done.contains(id));
    CHECK(d.events.answers.at(id).at(0).ids == together.events.answers.at(id).at(0).ids);
  }
}

TEST_CASE(
    "over llama: random jobs, cancels and hand-overs while KV is short; all end, books balance") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto upto = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
  batching_limits limits;
  limits.kv_tokens = 512;
  limits.step_tokens = 48;
  limits.cached_prefixes = 3;
  limits.slots = 6;
  engine_options options;
  options.piece_bytes_max = 15'000;
  llama_rig r(limits, 8, options);
  llama_rig p(limits, 8, options);
  std::map<job_id, generate_spec> jobs;
  std::set<job_id> granted;
  job_id next = 1;
  for (int idle = 0; idle < 2;) {
    if (next < 60 && upto(3) == 0) {
      auto spec = generate(next++, tokens_of(1 + upto(200), upto(4)), 1 + upto(150));
      spec.choices = static_cast<std::uint16_t>(1 + (upto(4) == 0 ? upto(4) : 0));
      spec.prefill_here = upto(3) != 0;
      if (!spec.prefill_here) REQUIRE(p.machine->submit(prefill(spec.id, spec.tokens)));
      REQUIRE(r.machine->submit(spec));
      jobs.emplace(spec.id, spec);
    }
    if (next > 1 && upto(25) == 0) {
      const auto id = 1 + upto(static_cast<unsigned>(next - 1));
      r.machine->cancel(id);
      p.machine->cancel(id);
    }
    const bool worked = r.step().worked;
    const bool prefilled = p.step().worked;
    for (const auto& [id, keep] : r.events.import_ready)
      if (granted.insert(id).second) p.machine->grant_delivery(id, keep);
    const bool moved = !p.events.pieces.empty();
    for (auto& piece : p.events.pieces) r.machine->import_piece(std::move(piece));
    p.events.pieces.clear();
    idle = worked || prefilled || moved || next < 60 ? 0 : idle + 1;
  }
  for (const auto& [id, spec] : jobs) {
    CAPTURE(id);
    if (r.events.failed.contains(id)) {
      CAPTURE(r.events.failed.at(id).why.code, r.events.failed.at(id).why.message);
      REQUIRE_FALSE(spec.prefill_here);
      REQUIRE(r.events.failed.at(id).why.code == "kv_exhausted");
    }
    REQUIRE(r.events.ended(id));
  }
  CHECK(r.machine->gauges().kv_referenced == 0);
}
