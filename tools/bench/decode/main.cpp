// Decode throughput of the engine against llama.cpp's own batched benchmark: the same model, batch,
// threads and memory; and with the cache full of idle prefixes against the bare loop in the same
// state. Interleaved, medians.

#include "tools/bench/decode/baseline.hpp"
#include "tools/bench/decode_rig.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

namespace troupe::bench {
namespace {

constexpr double bar = 0.95;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Tokens per second while all of the batch decode and nothing else happens.
double engine_rate(const decode_settings& s, std::size_t idle_tokens,
                   std::shared_ptr<const text::text_model> text) {
  engine::llama_options model;
  model.path = s.model;
  model.cells = static_cast<std::uint32_t>(s.cells);
  model.slots = static_cast<engine::slot_id>(s.batch) + 8;
  model.step_tokens = static_cast<std::uint32_t>(s.step_tokens);
  model.threads = static_cast<std::uint32_t>(s.threads);
  engine::batching_limits limits;
  limits.slots = static_cast<std::uint32_t>(s.batch);
  limits.kv_tokens = model.cells;
  limits.step_tokens = model.step_tokens;
  limits.cached_prefixes = 4;
  rig machine(model, limits, text);
  job_id next = 1;
  if (idle_tokens > 1) {
    // A finished job leaves its KV in the prefix cache.
    if (auto in = machine.machine().submit(
            greedy_job(next++, words_as_tokens(*text, idle_tokens - 1, 99), 1));
        !in)
      give_up(in.error().message);
    while (machine.done == 0) machine.step();
    if (machine.machine().gauges().kv_cached + 2 < idle_tokens)
      give_up("the cache does not hold the idle prefix");
  }
  const auto finished = machine.done;
  for (std::size_t j = 0; j < s.batch; ++j) {
    auto job = greedy_job(next++, words_as_tokens(*text, s.prompt_tokens, j),
                          static_cast<std::uint32_t>(s.answer_tokens) + 4);
    if (auto in = machine.machine().submit(std::move(job)); !in) give_up(in.error().message);
  }
  while (machine.step().decoded < s.batch) {
  }
  const auto before = machine.sampled;
  const auto start = std::chrono::steady_clock::now();
  while (machine.done == finished && machine.sampled - before < s.batch * s.answer_tokens)
    machine.step();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return static_cast<double>(machine.sampled - before) / took.count();
}

bool compare(const char* name, const char* against, std::size_t rounds,
             const std::function<double()>& ours, const std::function<double()>& theirs) {
  std::vector<double> our_rates;
  std::vector<double> their_rates;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < rounds; ++i) {
    // Whoever is second finds the machine as the first left it: they take turns.
    if (i % 2 == 0)
      our_rates.push_back(ours()), their_rates.push_back(theirs());
    else
      their_rates.push_back(theirs()), our_rates.push_back(ours());
    ratios.push_back(our_rates.back() / their_rates.back());
  }
  const auto ratio = median(ratios);
  fmt::print(
      "{:<12} engine {:8.1f} tokens/s   {} {:8.1f} tokens/s   ratio {:.3f} (bar {:.2f}) {}\n", name,
      median(our_rates), against, median(their_rates), ratio, bar, ratio >= bar ? "ok" : "MISSED");
  return ratio >= bar;
}

int run(const decode_settings& s, std::size_t rounds) {
  auto text = text::load_gguf_text_model(s.model, "", 0);
  if (!text) give_up(text.error().message);
  const auto needed = s.batch * (s.prompt_tokens + s.answer_tokens + 8);
  if (needed + 512 > s.cells)
    give_up(fmt::format("{} cells are too few for {} at once", s.cells, s.batch));
  const auto idle = s.cells - needed - 256;
  fmt::print("batch {}, prompts of {}, answers of {}, {} cells, {} threads, medians of {} "
             "interleaved pairs\n",
             s.batch, s.prompt_tokens, s.answer_tokens, s.cells, s.threads, rounds);
  bool good = compare(
      "empty cache", "llama-batched-bench", rounds, [&] { return engine_rate(s, 0, *text); },
      [&] { return batched_bench_rate(s); });
  good = compare(
             "full cache", "bare loop, as full ", rounds,
             [&] { return engine_rate(s, idle, *text); }, [&] { return direct_rate(s, idle); }) &&
         good;
  return good ? 0 : 1;
}

}  // namespace
}  // namespace troupe::bench

int main(int argc, char** argv) {
  troupe::bench::decode_settings s;
  s.batched_bench = TROUPE_LLAMA_BATCHED_BENCH;
  std::size_t rounds = 5;
  CLI::App app("Compares the engine's decode throughput with llama.cpp's batched benchmark, and "
               "with a full cache. Exit status 1 below the bar.");
  app.add_option("--model", s.model, "GGUF file")->required();
  app.add_option("--batch", s.batch, "answers at once")->capture_default_str();
  app.add_option("--prompt-tokens", s.prompt_tokens)->capture_default_str();
  app.add_option("--answer-tokens", s.answer_tokens)->capture_default_str();
  app.add_option("--cells", s.cells, "KV cells")->capture_default_str();
  app.add_option("--step-tokens", s.step_tokens)->capture_default_str();
  app.add_option("--threads", s.threads)->capture_default_str();
  app.add_option("--rounds", rounds)->capture_default_str();
  app.add_option("--batched-bench", s.batched_bench, "llama.cpp's program")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a line at a time, also into a file
  return troupe::bench::run(s, rounds);
}
