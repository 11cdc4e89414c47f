#pragma once

#include "actors/request/cost_book.hpp"
#include "actors/request/work_log.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::request {

/// A request that is over, as its actor leaves it to the hub's books.
struct ended_request {
  struct answer {
    std::uint32_t tokens = 0;  ///< that the client was given
    bool ended = false;        ///< it has a finish reason
    bool cut = false;          ///< which is its `max_tokens`
  };
  struct prompt {
    std::uint32_t tokens = 0;  ///< 0: it was never accepted
    std::uint32_t cached_tokens = 0;
    std::vector<answer> answers;
  };
  msg::request_id id;
  std::string external_id;
  std::string tenant = {};  ///< empty: there are none
  std::string model;
  std::vector<prompt> prompts;
  work_log work;
};

/// What a request has come to, in model units.
struct settlement {
  double tenant_mu = 0;    ///< what its tenant pays for: nothing cached, nothing twice
  double physical_mu = 0;  ///< what engines had to do, all attempts
  capacity::provenance price = capacity::provenance::assumed;  ///< where the costs come from
  bool guessed = false;  ///< a worker did not tell what a job has cost
  std::vector<job_account> jobs;
};

/// Pure, but for what the book remembers of the question.
settlement settle_work(const ended_request& x, cost_book& costs);

/// All costs of its jobs.
engine::job_cost total_cost(const std::vector<job_account>& jobs);

}  // namespace troupe::request
