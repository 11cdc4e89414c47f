#pragma once

#include "messages/job_key.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace troupe::console {

using msg::job_key;
using msg::request_id;

/// What one host's actors say that they hold. Values only: of real nodes, or of a simulation.
struct host_books {
  struct hub_part {
    std::uint64_t generation = 0;
    std::vector<request_id> requests;
    std::map<std::pair<std::string, std::uint64_t>, std::vector<job_key>> jobs;  ///< by worker
    std::vector<std::pair<std::string, std::uint64_t>> leases;  ///< with their shards
    std::uint32_t tickets = 0;  ///< open requests as admission counts them
    std::uint64_t prompt_bytes = 0;
    std::size_t left_out = 0;  ///< that the lists above lack
  };
  struct lease {
    std::uint64_t id = 0;
    std::string host;
    std::uint64_t incarnation = 0;
    std::string prefill;
    std::string decode;
    std::uint64_t tokens = 0;
    std::string shard;
  };
  struct engine_part {
    std::string worker;
    std::uint64_t generation = 0;
    std::vector<job_key> keys;
    std::size_t key_count = 0;
    std::uint32_t jobs = 0;  ///< of the engine itself
    std::uint32_t transfers = 0;
    std::uint32_t early_opens = 0;  ///< hand-overs that wait for their decode job
    std::uint32_t buffers = 0;      ///< of the KV transport
    std::uint32_t buffers_free = 0;
    std::uint64_t assembling_bytes = 0;  ///< of prompts that come in parts
    std::uint32_t referenced = 0;        ///< KV tokens
    std::uint32_t ledger_tokens = 0;
    std::uint32_t engine_cells = 0;
    std::vector<std::string> mismatches;  ///< ledger against the engine's own truth
  };
  std::string host;
  bool has_hub = false;
  hub_part hub;
  std::vector<std::string> shards;  ///< of the router, that answered here
  std::vector<lease> leases;        ///< of all of them
  std::size_t leases_left_out = 0;
  std::vector<engine_part> engines;
  std::vector<std::string> silent;  ///< did not answer: their part is unknown
};

/// Sums over all hosts.
struct held_in_all {
  std::size_t requests = 0;
  std::uint64_t prompt_bytes = 0;
  std::size_t leases = 0;         ///< as hubs hold them
  std::size_t router_leases = 0;  ///< as shards have given them
  std::size_t jobs = 0;           ///< as hubs hold them
  std::size_t worker_jobs = 0;
  std::size_t engine_jobs = 0;
  std::size_t transfers = 0;
  std::size_t early_opens = 0;
  std::size_t buffers = 0;  ///< in use, or in quarantine
  std::uint64_t assembling_bytes = 0;
  std::uint64_t kv_tokens = 0;  ///< referenced; what is cached only is nobody's
  bool zero() const;
};
held_in_all sum(const std::vector<host_books>& all);

/// What does not balance, one line each, in a stable order and wording: what stands in two of
/// these, taken one after the other, was no message on its way. Pure.
///
/// A lease that a hub doesn't know, and the other way round; a job that only one side knows; places
/// that no open request has; and what the engines themselves say. What nobody can compare, since an
/// actor was silent or a list was cut, is a line, too. A lease of a shard that nobody has is one
/// where `every_host` of the cluster is in `all` and no actor was silent.
std::vector<std::string> check_books(const std::vector<host_books>& all, bool every_host = true);

/// The lines of `second` that were in `first`.
std::vector<std::string> lasting(const std::vector<std::string>& first,
                                 const std::vector<std::string>& second);

}  // namespace troupe::console
