#include "actors/request/settlement.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace troupe::request {

settlement settle_work(const ended_request& x, cost_book& costs) {
  settlement s;
  const auto& price = costs.of_model(x.model);
  s.price = price.origin();
  s.jobs = x.work.jobs();
  s.guessed = !x.work.complete();
  std::vector<std::vector<capacity::attempt_work>> of_prompt(x.prompts.size());
  for (const auto& job : s.jobs) {
    if (job.prompt >= x.prompts.size()) continue;
    const auto& p = x.prompts[job.prompt];
    const auto work = work_of(job, p.tokens, p.cached_tokens);
    s.physical_mu += capacity::physical_mu(costs.of_worker(job.worker, x.model), std::array{work});
    of_prompt[job.prompt].push_back(work);
  }
  for (std::size_t i = 0; i < x.prompts.size(); ++i) {
    const auto& p = x.prompts[i];
    auto tokens = p.tokens;
    if (tokens == 0)  // it ended before anybody said how long it is
      for (const auto& w : of_prompt[i]) tokens = std::max(tokens, w.computed_to);
    s.tenant_mu += capacity::tenant_charge_mu(price, tokens, p.cached_tokens, 0, of_prompt[i]);
    for (const auto& a : p.answers) s.tenant_mu += price.decode_mu(p.tokens, a.tokens);
  }
  return s;
}

engine::job_cost total_cost(const std::vector<job_account>& jobs) {
  engine::job_cost sum;
  for (const auto& j : jobs) sum += j.cost;
  return sum;
}

}  // namespace troupe::request
