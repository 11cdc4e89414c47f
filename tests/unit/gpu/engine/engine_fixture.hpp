#pragma once

#include "gpu/engine/make_engine.hpp"
#include "gpu/engine/simulated/simulated_runner.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace troupe::engine::test {

class heap_buffer final : public piece_buffer {
 public:
  heap_buffer(std::size_t size, std::shared_ptr<int> free) : bytes_(size), free_(std::move(free)) {
    --*free_;
  }
  ~heap_buffer() override { ++*free_; }
  std::span<std::byte> bytes() override { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
  std::shared_ptr<int> free_;
};

/// What a client would have received of one choice; checks the contract of deltas as they come.
struct received {
  std::vector<token_id> ids;
  std::string text;
  finish why = finish::none;
  std::string stop_text;
  std::vector<token_logprob> logprobs;
};

/// Records everything, and checks what must hold in any order of events.
class recorder : public event_sink {
 public:
  std::shared_ptr<int> free_count = std::make_shared<int>(
      1000);  ///< shared, since buffers may outlive their engine
  int& buffers_free = *free_count;
  std::map<job_id, std::map<std::uint16_t, received>> answers;
  std::map<job_id, position> import_ready, started, prefill_cached;
  std::set<job_id> adopted, done, cancelled, prefill_done;
  std::map<job_id, job_failure> failed;
  std::map<job_id, std::uint32_t> sampled;
  std::map<job_id, std::pair<std::vector<token_id>, std::uint32_t>> leaving;
  std::map<job_id, troupe::error> stays;
  std::vector<kv_piece> pieces;
  std::multiset<std::uint64_t> prefixes;

  bool ended(job_id id) const {
    return done.contains(id) || cancelled.contains(id) || failed.contains(id) ||
           prefill_done.contains(id);
  }

  /// What jobs cost, in all, and what came with their last token.
  std::map<job_id, job_cost> costs, last_costs;

  void on_cost(job_id job, const job_cost& cost) override {
    REQUIRE(cost.any());
    REQUIRE_FALSE(ended(job));
    auto& sum = costs[job];
    sum.prefill += cost.prefill;
    sum.decode += cost.decode;
    sum.transfer += cost.transfer;
    sum.computed += cost.computed;
    sum.computed_context += cost.computed_context;
    sum.sampled += cost.sampled;
    sum.step_shares += cost.step_shares;
    sum.sampled_context += cost.sampled_context;
  }
  void on_import_ready(job_id job, position keep) override {
    REQUIRE_FALSE(ended(job));
    REQUIRE(import_ready.emplace(job, keep).second);
  }
  std::unique_ptr<piece_buffer> acquire_piece_buffer(job_id, std::size_t size) override {
    if (buffers_free <= 0) return nullptr;
    return std::make_unique<heap_buffer>(size, free_count);
  }
  void on_piece(kv_piece piece) override {
    REQUIRE_FALSE(ended(piece.job));
    pieces.push_back(std::move(piece));
  }
  void on_prefill_done(job_id job, position cached, std::chrono::microseconds,
                       std::chrono::microseconds) override {
    REQUIRE_FALSE(ended(job));
    prefill_done.insert(job);
    prefill_cached[job] = cached;
  }
  void on_adopted(job_id job) override {
    REQUIRE(import_ready.contains(job));
    REQUIRE(adopted.insert(job).second);
  }
  void on_started(job_id job, position cached) override {
    REQUIRE_FALSE(ended(job));
    REQUIRE(started.emplace(job, cached).second);
  }
  void on_delta(choice_delta delta) override {
    REQUIRE_FALSE(ended(delta.job));
    REQUIRE_FALSE(leaving.contains(delta.job));
    auto& a = answers[delta.job][delta.choice];
    REQUIRE(a.why == finish::none);
    if (a.ids.empty()) a.ids.resize(delta.first_index, -1);  // of earlier attempts
    REQUIRE(delta.first_index == a.ids.size());
    a.ids.insert(a.ids.end(), delta.ids.begin(), delta.ids.end());
    a.text += delta.text;
    a.why = delta.why;
    a.stop_text = delta.stop_text;
    a.logprobs.insert(a.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
    if (delta.cost) REQUIRE(last_costs.emplace(delta.job, *delta.cost).second);
    emitted[{delta.job, delta.choice}].push_back(delta.emitted_bytes);
  }
  void on_done(job_id job, std::uint32_t count, std::chrono::microseconds) override {
    REQUIRE_FALSE(ended(job));
    done.insert(job);
    sampled[job] = count;
  }
  void on_failed(job_failure failure) override {
    REQUIRE_FALSE(ended(failure.job));
    failed.emplace(failure.job, failure);
  }
  void on_cancelled(job_id job) override {
    REQUIRE_FALSE(ended(job));
    cancelled.insert(job);
  }
  void on_leaving(job_id job, std::vector<token_id> tokens, std::uint32_t answer) override {
    REQUIRE_FALSE(ended(job));
    REQUIRE(leaving.emplace(job, std::pair{std::move(tokens), answer}).second);
  }
  void on_stays(job_id job, troupe::error why) override {
    REQUIRE_FALSE(ended(job));
    stays.emplace(job, std::move(why));
  }
  void on_prefixes(std::span<const std::uint64_t> added,
                   std::span<const std::uint64_t> dropped) override {
    for (const auto hash : added) {
      REQUIRE_FALSE(prefixes.contains(hash));
      prefixes.insert(hash);
    }
    for (const auto hash : dropped) REQUIRE(prefixes.erase(hash) == 1);
  }

  std::map<std::pair<job_id, std::uint16_t>, std::vector<std::uint32_t>> emitted;
};

/// An engine over the simulated model and the byte text model, whose books are audited after each
/// step.
struct rig {
  explicit rig(batching_limits limits = {}, simulated_options simulated = {},
               engine_options options = {}) {
    simulated.cells = std::max(simulated.cells, limits.kv_tokens);
    if (simulated.end_tokens.empty()) simulated.end_tokens = {258, 259};
    auto made = std::make_unique<simulated_runner>(std::move(simulated));
    runner = made.get();
    text = text::make_byte_text_model(8192);
    machine = make_batching_engine(std::move(made), text, limits, std::move(options));
  }

  step_report step() {
    const auto report = machine->step(events);
    INFO(runner->last_error());
    const auto audit = machine->audit();
    REQUIRE(audit.mismatches == std::vector<std::string>{});
    return report;
  }
  /// Steps until there is nothing to do. Errors: a test failure at `steps_max`.
  void run(int steps_max = 100'000) {
    while (step().worked) REQUIRE(steps_max-- > 0);
  }
  std::string text_of(const std::vector<token_id>& ids) const {
    std::string out;
    for (const auto id : ids) out += text->piece(id);
    return out;
  }

  recorder events;
  simulated_runner* runner = nullptr;
  std::shared_ptr<const text::text_model> text;
  std::unique_ptr<engine> machine;
};

inline std::vector<token_id> prompt_of(std::size_t tokens, unsigned salt = 0) {
  std::vector<token_id> out;
  for (std::size_t i = 0; i < tokens; ++i)
    out.push_back(static_cast<token_id>('a' + (i * 7 + i / 26 + salt) % 26));
  return out;
}

inline generate_spec generate(job_id id, std::vector<token_id> prompt, std::uint32_t max_tokens) {
  generate_spec spec;
  spec.id = id;
  spec.tokens = std::move(prompt);
  spec.max_tokens = max_tokens;
  spec.how.temperature = 0;
  return spec;
}

inline prefill_spec prefill(job_id id, std::vector<token_id> prompt) {
  prefill_spec spec;
  spec.id = id;
  spec.tokens = std::move(prompt);
  return spec;
}

/// Carries a request through a prefill and a decode engine with a transport that takes no time.
inline void hand_over(rig& p, rig& d, job_id id, int rounds_max = 10'000) {
  bool granted = false;
  while (!d.events.ended(id) && !p.events.failed.contains(id)) {
    REQUIRE(rounds_max-- > 0);
    p.step();
    d.step();
    if (!granted && d.events.import_ready.contains(id)) {
      p.machine->grant_delivery(id, d.events.import_ready[id]);
      granted = true;
    }
    for (auto& piece : p.events.pieces) d.machine->import_piece(std::move(piece));
    p.events.pieces.clear();
  }
  p.run();
  d.run();
}

inline std::vector<token_id> ids_of(const rig& r, job_id id, std::uint16_t choice = 0) {
  return r.events.answers.at(id).at(choice).ids;
}

/// What the model answers, computed on its own.
inline std::vector<token_id> reference(std::vector<token_id> prompt, std::uint32_t max_tokens) {
  rig r;
  REQUIRE(r.machine->submit(generate(1, std::move(prompt), max_tokens)));
  r.run();
  return ids_of(r, 1);
}

}  // namespace troupe::engine::test
