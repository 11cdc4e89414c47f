#include "actors/request/work_log.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace troupe::request {

job_account* work_log::find(const std::string& worker, const job_key& key) {
  const auto i = std::find_if(jobs_.begin(), jobs_.end(), [&](const job_account& j) {
    return j.attempt == key.attempt && j.prompt == key.prompt && j.worker == worker;
  });
  return i == jobs_.end() ? nullptr : &*i;
}

void work_log::opened(const std::string& worker, const job_key& key) {
  if (find(worker, key) != nullptr) return;
  if (jobs_.size() == jobs_max) {
    auto& sum = jobs_.front();
    const auto& next = jobs_[1];
    sum.worker.clear();
    sum.cost += next.cost;
    sum.told = sum.told && next.told;
    sum.lost = true;
    jobs_.erase(jobs_.begin() + 1);
  }
  jobs_.push_back({worker, key.prompt, key.attempt, {}, false, false});
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

void work_log::lost(const std::string& worker) {
  for (auto& j : jobs_)
    if (j.worker == worker) j.lost = true;
}

std::size_t work_log::owed() const {
  return static_cast<std::size_t>(std::count_if(
      jobs_.begin(), jobs_.end(), [](const job_account& j) { return !j.told && !j.lost; }));
}

bool work_log::complete() const {
  return std::all_of(jobs_.begin(), jobs_.end(), [](const job_account& j) { return j.told; });
}

engine::job_cost guessed_cost(std::uint32_t context, std::uint32_t cached, std::uint32_t came,
                              bool prefilled) {
  engine::job_cost cost;
  if (prefilled && context > cached) {
    cost.computed = context - cached;
    cost.computed_context = cost.computed * (cached + (cost.computed - 1) / 2.0);
  }
  cost.sampled = came;
  cost.sampled_context = static_cast<double>(came) * (context + came / 2.0);
  cost.step_shares = came;
  return cost;
}

capacity::attempt_work work_of(const job_account& job, std::uint32_t prompt_tokens,
                               std::uint32_t cached_tokens) {
  const auto& cost = job.cost;
  capacity::attempt_work work;
  work.output_tokens = cost.sampled;
  if (cost.sampled > 0) {
    const auto context = cost.sampled_context / cost.sampled - cost.sampled / 2.0;
    work.prompt_tokens = static_cast<std::uint32_t>(std::max(0.0, std::round(context)));
  }
  work.transfer_seconds = std::chrono::duration<double>(cost.transfer).count();
  if (cost.computed == 0) return work;
  if (job.attempt == 1 && prompt_tokens > cached_tokens) {
    work.cached_tokens = cached_tokens;
    work.computed_to = cached_tokens + std::min(cost.computed, prompt_tokens - cached_tokens);
  } else {
    // One range [b, b + n) has n tokens before each of which stand n·b + n·(n - 1) / 2 in all.
    const double n = cost.computed;
    const auto begin = std::round(cost.computed_context / n - (n - 1) / 2);
    work.cached_tokens = static_cast<std::uint32_t>(std::clamp(begin, 0.0, 4e9));
    work.computed_to = work.cached_tokens + cost.computed;
    if (begin < 0 && prompt_tokens > 0)  // the same positions more than once
      work.computed_to = std::min(cost.computed, prompt_tokens);
  }
  work.repeated_tokens = cost.computed - (work.computed_to - work.cached_tokens);
  return work;
}

}  // namespace troupe::request
