#include "actors/request/work_log.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>

namespace troupe::request {

job_account* work_log::find(const std::string& worker, const job_key& key) {
  const auto i = std::find_if(jobs_.begin(), jobs_.end(), [&](const job_account& j) {
    return j.attempt == key.attempt && j.prompt == key.prompt && j.worker == worker;
  });
  return i == jobs_.end() ? nullptr : &*i;
}

void work_log::opened(const std::string& worker, std::uint64_t generation, const job_key& key) {
  if (find(worker, key) != nullptr) return;
  if (jobs_.size() >= jobs_per_prompt_max) sum_up(key.prompt);
  jobs_.push_back({worker, generation, key.prompt, key.attempt, {}, false, false});
}

/// Makes room for another job of the prompt. Of what was told nothing is lost; what a worker that
/// is gone, or at worst one that has not told for so many attempts, tells after that is.
void work_log::sum_up(std::uint16_t prompt) {
  const auto of_prompt = [&](const job_account& j) { return j.prompt == prompt; };
  if (std::count_if(jobs_.begin(), jobs_.end(), of_prompt) <
      static_cast<std::ptrdiff_t>(jobs_per_prompt_max))
    return;
  const auto two = [&](auto may) {
    auto first = std::find_if(jobs_.begin(), jobs_.end(), may);
    auto second = first == jobs_.end() ? first : std::find_if(first + 1, jobs_.end(), may);
    if (second == jobs_.end()) return false;
    first->worker.clear();
    first->cost += second->cost;
    first->told = first->told && second->told;
    first->lost = true;
    jobs_.erase(second);
    return true;
  };
  if (two([&](const job_account& j) { return of_prompt(j) && j.told; })) return;
  if (two([&](const job_account& j) { return of_prompt(j) && (j.told || j.lost); })) return;
  two(of_prompt);
}

void work_log::told(const std::string& worker, const job_key& key, const engine::job_cost& cost) {
  auto* job = find(worker, key);
  if (job == nullptr) {
    // A job that was about to leave goes by its next name before its request knows.
    const auto i = std::find_if(jobs_.begin(), jobs_.end(), [&](const job_account& j) {
      return !j.told && j.prompt == key.prompt && j.attempt < key.attempt && j.worker == worker;
    });
    if (i == jobs_.end()) return;
    job = &*i;
    job->attempt = key.attempt;
  }
  job->cost = cost;
  job->told = true;
}

void work_log::guess(const std::string& worker, const job_key& key, const engine::job_cost& cost) {
  if (auto* job = find(worker, key); job != nullptr && !job->told) job->cost = cost;
}

void work_log::renamed(const std::string& worker, const job_key& from, const job_key& to) {
  if (auto* job = find(worker, from); job != nullptr) job->attempt = to.attempt;
}

void work_log::lost(const std::string& worker, std::uint64_t alive) {
  for (auto& j : jobs_)
    if (j.worker == worker && j.generation != alive) j.lost = true;
}

std::size_t work_log::owed() const {
  return static_cast<std::size_t>(std::count_if(
      jobs_.begin(), jobs_.end(), [](const job_account& j) { return !j.told && !j.lost; }));
}

bool work_log::complete() const {
  return std::all_of(jobs_.begin(), jobs_.end(), [](const job_account& j) { return j.told; });
}

engine::job_cost guessed_cost(std::uint32_t prompt, std::uint32_t cached,
                              std::span<const choice_work> choices, bool prefilled) {
  engine::job_cost cost;
  // [begin, end), of which each token has all before it for context.
  const auto compute = [&](double begin, double end) {
    if (end <= begin) return;
    cost.computed += static_cast<std::uint32_t>(end - begin);
    cost.computed_context += (end - begin) * (begin + (end - begin - 1) / 2);
  };
  if (prefilled) compute(cached, prompt);
  for (const auto& c : choices) {
    const auto context = static_cast<double>(prompt) + c.before;
    if (prefilled) compute(std::max(prompt, cached), context);
    cost.sampled += c.came;
    cost.sampled_context += c.came * (context + c.came / 2.0);
  }
  cost.step_shares = cost.sampled;
  return cost;
}

engine::job_cost guessed_cost(std::uint32_t context, std::uint32_t cached, std::uint32_t came,
                              bool prefilled) {
  return guessed_cost(context, cached, std::array{choice_work{0, came}}, prefilled);
}

capacity::attempt_work work_of(const job_account& job, std::uint32_t prompt_tokens,
                               std::uint32_t cached_tokens) {
  constexpr double longest = std::numeric_limits<std::uint32_t>::max();
  // Other processes' words: no token has more before it than there can be.
  const auto believed = [&](double context, std::uint32_t tokens) {
    return context > 0 ? std::min(context, longest * tokens) : 0.0;
  };
  const auto& cost = job.cost;
  capacity::attempt_work work;
  work.computed_tokens = cost.computed;
  work.computed_context = believed(cost.computed_context, cost.computed);
  work.output_tokens = cost.sampled;
  work.sampled_context = believed(cost.sampled_context, cost.sampled);
  work.transfer_seconds = std::chrono::duration<double>(cost.transfer).count();
  if (cost.computed == 0) return work;
  // One range [b, b + n) has n tokens before each of which stand n·b + n·(n - 1) / 2 in all.
  const double n = cost.computed;
  const auto begin = std::round(work.computed_context / n - (n - 1) / 2);
  // A first attempt has no answer to take along.
  const double end_max = job.attempt == 1 && prompt_tokens > 0 ? prompt_tokens : longest;
  if (begin >= 0 && begin + n <= end_max) {
    work.cached_tokens = static_cast<std::uint32_t>(begin);
    work.computed_to = static_cast<std::uint32_t>(begin + n);
  } else {  // the same positions more than once
    const double all = prompt_tokens > 0 ? prompt_tokens : n;
    work.cached_tokens = static_cast<std::uint32_t>(std::min<double>(cached_tokens, all));
    work.computed_to = static_cast<std::uint32_t>(std::min(all, work.cached_tokens + n));
  }
  return work;
}

}  // namespace troupe::request
