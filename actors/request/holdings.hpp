#pragma once

#include "actors/link/post_office.hpp"
#include "actors/request/submission.hpp"
#include "messages/base/planted.hpp"
#include "messages/job_key.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe::request {

// What a request holds, as objects whose destructors give it back. Whatever ends a request actor
// (done, client gone, deadline, error, kill), its state's destructor runs.

using msg::job_key;

/// All jobs of a node that are open at workers, so that one message per worker renews their leases.
/// Thread-safe.
class job_book {
 public:
  using worker = std::pair<std::string, std::uint64_t>;  ///< name, generation

  void add(const worker& w, const job_key& key);
  void remove(const worker& w, const job_key& key);
  std::map<worker, std::vector<job_key>> all() const;
  /// Jobs at a worker's incarnations other than `alive` (0: at any of them).
  std::vector<job_key> at(const std::string& worker_name, std::uint64_t alive = 0) const;
  std::size_t size() const;

 private:
  mutable std::mutex mutex_;
  std::map<worker, std::set<job_key>> jobs_;
};

/// All routing leases that a node's requests hold, with the shards that granted them. Thread-safe.
class lease_book {
 public:
  using lease = std::pair<std::string, std::uint64_t>;  ///< shard, its number there

  void add(const lease& l);
  void remove(const lease& l);
  std::vector<lease> all() const;

 private:
  mutable std::mutex mutex_;
  std::set<lease> leases_;
};

/// A job at a worker. Destroying it while the job is open cancels it there.
class held_job {
 public:
  held_job(std::shared_ptr<link::post_office> office, std::shared_ptr<job_book> book,
           msg::address from, msg::address worker, job_key key);
  ~held_job();
  held_job(const held_job&) = delete;
  held_job& operator=(const held_job&) = delete;
  const msg::address& worker() const { return worker_; }
  /// The worker holds nothing any more.
  void done();
  bool open() const { return open_; }

 private:
  std::shared_ptr<link::post_office> office_;
  std::shared_ptr<job_book> book_;
  msg::address from_;
  msg::address worker_;
  job_key key_;
  bool open_ = true;
};

/// A routing lease. Destroying it gives it back to the shard that granted it.
class held_route {
 public:
  held_route(std::shared_ptr<link::post_office> office, std::shared_ptr<lease_book> book,
             msg::address from, msg::address shard, std::uint64_t lease, std::string host);
  ~held_route();
  held_route(const held_route&) = delete;
  held_route& operator=(const held_route&) = delete;
  /// For the shard's next choices; 0: not known.
  struct outcome {
    std::uint32_t prompt_tokens = 0;
    std::uint32_t cached_tokens = 0;
    std::uint64_t transfer_bytes = 0;
    std::uint64_t wire_us = 0;
  };
  /// The prompt is computed: others can be leased to that worker.
  void prefill_done(const outcome& what);
  /// The prompt is no longer under suspicion: others that are can come to these workers.
  void cleared();

 private:
  std::shared_ptr<link::post_office> office_;
  std::shared_ptr<lease_book> book_;
  msg::address from_;
  msg::address shard_;
  std::uint64_t lease_;
  std::string host_;
};

/// A place among the node's open requests, and its share of the memory for prompts. Made by
/// `admission::enter`.
class ticket;

/// Counts open requests and held prompt bytes of a node. Thread-safe; must be owned by a
/// shared_ptr.
class admission : public std::enable_shared_from_this<admission> {
 public:
  admission(std::uint32_t requests_max, std::uint64_t bytes_max)
      : requests_max_(requests_max), bytes_max_(bytes_max) {}
  /// Errors: `too_many_requests`, `prompt_memory_full`.
  expected<std::unique_ptr<ticket>> enter(std::uint64_t bytes);
  std::uint32_t open() const { return requests_; }
  std::uint64_t held_bytes() const { return bytes_; }
  std::uint32_t free_requests() const { return left(requests_max_, requests_.load()); }
  std::uint64_t free_bytes() const { return left(bytes_max_, bytes_.load()); }

 private:
  friend class ticket;
  /// Whoever is about to be refused is counted for a moment.
  template <class Number>
  static Number left(Number most, Number used) {
    return used < most ? most - used : 0;
  }
  std::uint32_t requests_max_;
  std::uint64_t bytes_max_;
  std::atomic<std::uint32_t> requests_{0};
  std::atomic<std::uint64_t> bytes_{0};
};

class ticket {
 public:
  ticket(std::shared_ptr<admission> from, std::uint64_t bytes)
      : from_(std::move(from)), bytes_(bytes) {}
  ~ticket() {
    if (planted::is(planted::bug::leak_ticket)) return;
    from_->bytes_ -= bytes_;
    --from_->requests_;
  }
  ticket(const ticket&) = delete;
  ticket& operator=(const ticket&) = delete;

 private:
  std::shared_ptr<admission> from_;
  std::uint64_t bytes_;
};

}  // namespace troupe::request
