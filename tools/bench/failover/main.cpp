// How far from llama.cpp's own choice does a greedy answer get that breaks off again and again and
// goes on in another engine? A real engine rounds differently in every batch, so the answer may be
// another one; what must hold is that its tokens are as good as those of answers that nothing
// happened to. "Gap" of a token: what it lacks to the best one (in logits) in a direct forward pass
// over the answer itself.

#include "tools/bench/decode_rig.hpp"
#include "tools/bench/identity/reference.hpp"

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>

namespace troupe::bench {
namespace {

struct settings {
  engine::llama_options model;
  std::size_t streams = 8;
  std::size_t prompt_tokens = 200;
  std::size_t unfailed_tokens = 10'000;
  std::size_t failed_tokens = 2'000;
  std::size_t breaks = 5;
  double allowed = 2;  ///< times the unfailed percentile
  std::uint64_t seed = 1;
};

using answers = std::vector<std::vector<token_id>>;

engine::batching_limits limits_of(const settings& s) {
  engine::batching_limits out;
  out.slots = static_cast<std::uint32_t>(s.streams);
  out.kv_tokens = s.model.cells;
  out.step_tokens = s.model.step_tokens;
  out.prefix_reuse = false;
  return out;
}

/// Goes on with all streams at once in a fresh engine, until each has `until` tokens in all.
void go_on(const settings& s, const std::shared_ptr<const text::text_model>& text,
           const answers& prompts, answers& so_far, std::size_t until) {
  rig r(s.model, limits_of(s), text);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    auto job = greedy_job(i + 1, prompts[i], static_cast<std::uint32_t>(until));
    if (!so_far[i].empty()) job.resume = {{so_far[i], 0, false}};
    if (auto in = r.machine().submit(std::move(job)); !in) give_up(in.error().message);
  }
  while (r.done < prompts.size()) r.step();
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto& more = r.ids[i + 1];
    so_far[i].insert(so_far[i].end(), more.begin(), more.end());
    if (so_far[i].size() != until)
      give_up(fmt::format("stream {} has {} tokens, not {}", i, so_far[i].size(), until));
  }
}

double percentile(std::vector<float> values, double p) {
  const auto at = static_cast<std::size_t>(
      std::min<double>(std::ceil(p / 100 * static_cast<double>(values.size())),
                       static_cast<double>(values.size())) -
      1);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

int run(const settings& s) {
  assert(s.streams > 0 && "the command line is checked");
  auto text = text::load_gguf_text_model(s.model.path, "", 0);
  if (!text) give_up(text.error().message);
  answers prompts;
  for (std::size_t i = 0; i < s.streams; ++i)
    prompts.push_back(words_as_tokens(**text, s.prompt_tokens, s.seed + i));

  answers whole(s.streams);
  const auto length = (s.unfailed_tokens + s.streams - 1) / s.streams;
  fmt::print("{} streams of {} tokens in one batch, undisturbed\n", s.streams, length);
  go_on(s, *text, prompts, whole, length);

  answers broken(s.streams);
  std::mt19937_64 random(s.seed);
  const auto after_first = s.failed_tokens / s.streams;
  const auto first = 1 + random() % 64;
  std::vector<std::size_t> stops;
  for (std::size_t i = 0; i < s.breaks; ++i) stops.push_back(first + i * after_first / s.breaks);
  fmt::print("the same {} streams, each broken off after tokens {}\n", s.streams,
             fmt::join(stops, ", "));
  for (const auto stop : stops) go_on(s, *text, prompts, broken, stop);
  go_on(s, *text, prompts, broken, first + after_first);

  reference direct(s.model);
  std::vector<float> usual, later;
  std::size_t same = 0;
  for (std::size_t i = 0; i < s.streams; ++i) {
    const auto gaps = direct.gaps(prompts[i], whole[i]);
    usual.insert(usual.end(), gaps.begin(), gaps.end());
    const auto after = direct.gaps(prompts[i], broken[i]);
    later.insert(later.end(), after.begin() + static_cast<std::ptrdiff_t>(first), after.end());
    same += std::equal(broken[i].begin(), broken[i].end(), whole[i].begin());
  }
  const auto limit = s.allowed * percentile(usual, 99.9);
  const auto worst = *std::max_element(later.begin(), later.end());
  const auto not_best = [](const std::vector<float>& gaps) {
    return std::count_if(gaps.begin(), gaps.end(), [](float g) { return g > 0; });
  };
  fmt::print("unfailed: {} tokens, {} not the best, gap p99.9 {:.4f}, max {:.4f}\n", usual.size(),
             not_best(usual), percentile(usual, 99.9),
             *std::max_element(usual.begin(), usual.end()));
  fmt::print("after a break: {} tokens, {} not the best, gap p99.9 {:.4f}, max {:.4f}; {} of {} "
             "answers the same\n",
             later.size(), not_best(later), percentile(later, 99.9), worst, same, s.streams);
  const bool holds = worst <= limit;
  fmt::print("{:<60} {:.4f}, allowed {:.4f}: {}\n",
             "largest gap after a break, against the unfailed p99.9", worst, limit,
             holds ? "holds" : "FAILS");
  return holds ? 0 : 1;
}

}  // namespace
}  // namespace troupe::bench

int main(int argc, char** argv) {
  troupe::bench::settings s;
  s.model.cells = 16'384;
  s.model.slots = 16;
  s.model.threads = 2;
  CLI::App app(
      "Compares greedy answers that broke off and went on elsewhere with undisturbed ones, "
      "token by token. Exit status 1 when a token is worse than allowed.");
  app.add_option("--model", s.model.path, "GGUF file")->required();
  app.add_option("--streams", s.streams, "in one batch")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--prompt-tokens", s.prompt_tokens, "of each prompt")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--unfailed-tokens", s.unfailed_tokens, "in all")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--failed-tokens", s.failed_tokens, "in all, after the first break")
      ->capture_default_str();
  app.add_option("--breaks", s.breaks, "of each stream")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--threads", s.model.threads, "that compute")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--seed", s.seed, "of the prompts and breaks")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a line at a time, also into a file
  return troupe::bench::run(s);
}
