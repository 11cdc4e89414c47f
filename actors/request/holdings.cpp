#include "actors/request/holdings.hpp"
#include "messages/base/planted.hpp"

#include <utility>

namespace troupe::request {

void job_book::add(const worker& w, const job_key& key) {
  std::lock_guard lock{mutex_};
  jobs_[w].insert(key);
}

void job_book::remove(const worker& w, const job_key& key) {
  std::lock_guard lock{mutex_};
  auto i = jobs_.find(w);
  if (i == jobs_.end()) return;
  i->second.erase(key);
  if (i->second.empty()) jobs_.erase(i);
}

std::map<job_book::worker, std::vector<job_key>> job_book::all() const {
  std::lock_guard lock{mutex_};
  std::map<worker, std::vector<job_key>> result;
  for (const auto& [w, keys] : jobs_) result[w] = {keys.begin(), keys.end()};
  return result;
}

std::vector<job_key> job_book::at(const std::string& worker_name, std::uint64_t alive) const {
  std::lock_guard lock{mutex_};
  std::vector<job_key> result;
  for (const auto& [w, keys] : jobs_)
    if (w.first == worker_name && w.second != alive)
      result.insert(result.end(), keys.begin(), keys.end());
  return result;
}

std::size_t job_book::size() const {
  std::lock_guard lock{mutex_};
  std::size_t sum = 0;
  for (const auto& [w, keys] : jobs_) sum += keys.size();
  return sum;
}

held_job::held_job(std::shared_ptr<link::post_office> office, std::shared_ptr<job_book> book,
                   msg::address from, msg::address worker, job_key key)
    : office_(std::move(office)), book_(std::move(book)), from_(std::move(from)),
      worker_(std::move(worker)), key_(key) {
  book_->add({worker_.name, worker_.generation}, key_);
}

held_job::~held_job() {
  if (!open_) return;
  done();
  msg::draft<msg::CancelJobs> d;
  write(d->initKeys(1)[0], key_);
  if (auto e = std::move(d).freeze()) office_->send(worker_, from_, *std::move(e));
}

void held_job::done() {
  if (std::exchange(open_, false)) book_->remove({worker_.name, worker_.generation}, key_);
}

void lease_book::add(const lease& l) {
  std::lock_guard lock{mutex_};
  leases_.insert(l);
}

void lease_book::remove(const lease& l) {
  std::lock_guard lock{mutex_};
  leases_.erase(l);
}

std::vector<lease_book::lease> lease_book::all() const {
  std::lock_guard lock{mutex_};
  return {leases_.begin(), leases_.end()};
}

held_route::held_route(std::shared_ptr<link::post_office> office, std::shared_ptr<lease_book> book,
                       msg::address from, msg::address shard, std::uint64_t lease, std::string host)
    : office_(std::move(office)), book_(std::move(book)), from_(std::move(from)),
      shard_(std::move(shard)), lease_(lease), host_(std::move(host)) {
  book_->add({shard_.name, lease_});
}

void held_route::prefill_done(const outcome& what) {
  msg::draft<msg::RouteRelease> d;
  d->initPrefills(1).set(0, lease_);
  d->setHost(host_);
  if (what.prompt_tokens > 0 || what.transfer_bytes > 0) {
    auto out = d->initOutcomes(1)[0];
    out.setLease(lease_);
    out.setPromptTokens(what.prompt_tokens);
    out.setCachedTokens(what.cached_tokens);
    out.setTransferBytes(what.transfer_bytes);
    out.setWireUs(what.wire_us);
  }
  if (auto e = std::move(d).freeze()) office_->send(shard_, from_, *std::move(e));
}

void held_route::cleared() {
  msg::draft<msg::RouteRelease> d;
  d->initCleared(1).set(0, lease_);
  d->setHost(host_);
  if (auto e = std::move(d).freeze()) office_->send(shard_, from_, *std::move(e));
}

held_route::~held_route() {
  book_->remove({shard_.name, lease_});
  if (planted::is(planted::bug::leak_lease)) return;
  msg::draft<msg::RouteRelease> d;
  d->initLeases(1).set(0, lease_);
  d->setHost(host_);
  if (auto e = std::move(d).freeze()) office_->send(shard_, from_, *std::move(e));
}

expected<std::unique_ptr<ticket>> admission::enter(std::uint64_t bytes) {
  if (requests_.fetch_add(1) >= requests_max_) {
    --requests_;
    return error{"too_many_requests",
                 "This node has " + std::to_string(requests_max_) +
                     " open requests, which is its limit (limits.requests_max); try again later."};
  }
  if (bytes_.fetch_add(bytes) + bytes > bytes_max_) {
    bytes_ -= bytes;
    --requests_;
    return error{"prompt_memory_full", "This node holds as many prompt bytes as it may "
                                       "(limits.held_prompt_bytes_max); try again later."};
  }
  return std::make_unique<ticket>(shared_from_this(), bytes);
}

}  // namespace troupe::request
