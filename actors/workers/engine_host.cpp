#include "actors/workers/engine_host.hpp"

#include "actors/workers/token_batch.hpp"
#include "messages/base/planted.hpp"
#include "messages/text.hpp"

#include <caf/send.hpp>

#include <pthread.h>

#include <algorithm>
#include <iterator>

namespace troupe::workers {

namespace {
/// An idle engine looks up this often; what is submitted wakes it at once.
constexpr std::chrono::milliseconds idle_wait{1'000};
/// Tokens do not wait for a pass of more than these: where steps are so short that tokens wait at
/// all, fewer take no more than a few milliseconds, also of a prompt.
constexpr std::size_t short_pass_tokens_max = 256;
}  // namespace

engine_host::engine_host(std::unique_ptr<engine::engine> engine, options how)
    : engine_(std::move(engine)), how_(std::move(how)) {
  if (how_.hand_over) how_.hand_over->on_buffer_free([this] { engine_->wake(); });
}

engine_host::~engine_host() {
  stop();
  if (how_.hand_over) how_.hand_over->on_buffer_free({});
}

void engine_host::start(caf::actor worker) {
  worker_ = std::move(worker);
  if (how_.own_thread) thread_ = std::thread{[this] { run(); }};
}

void engine_host::stop() {
  stopping_ = true;
  engine_->wake();
  if (thread_.joinable()) thread_.join();
}

void engine_host::route(engine::job_id job, job_route where) {
  std::lock_guard lock{mutex_};
  routes_[job] = std::move(where);
}

void engine_host::forget(engine::job_id job) {
  if (planted::is(planted::bug::leak_job)) return;
  std::lock_guard lock{mutex_};
  routes_.erase(job);
  acceptances_.erase(job);
  sampled_.erase(job);
}

void engine_host::accept_when_started(engine::job_id job, acceptance what) {
  std::lock_guard lock{mutex_};
  acceptances_[job] = std::move(what);
}

std::size_t engine_host::routes() const {
  std::lock_guard lock{mutex_};
  return routes_.size();
}

std::uint32_t engine_host::sampled(engine::job_id job) const {
  std::lock_guard lock{mutex_};
  auto i = sampled_.find(job);
  return i == sampled_.end() ? 0 : i->second;
}

void engine_host::request_audit(audit_request what) {
  {
    std::lock_guard lock{mutex_};
    audits_.push_back(std::move(what));
  }
  engine_->wake();
}

job_route engine_host::find(engine::job_id job) const {
  std::lock_guard lock{mutex_};
  auto i = routes_.find(job);
  return i == routes_.end() ? job_route{} : i->second;
}

void engine_host::run() {
  ::pthread_setname_np(::pthread_self(), "engine");  // for whoever looks at a stuck process
  while (!stopping_) {
    if (!step() && !stopping_) engine_->wait(idle_wait);
  }
  flush();
}

bool engine_host::step() {
  const auto report = engine_->step(*this);
  if (!report.worked || !may_wait()) flush();
  if (!at_hand_.empty()) on_work({});
  audit();
  return report.worked;
}

/// Whether what is to be told can go with what the next step brings: tokens and nothing else, none
/// of them a stream's first, and the last ones have only just left. Events are of one step: who
/// reads them takes failures for those of one pass, and blocks that came and went by their order.
bool engine_host::may_wait() const {
  return !deltas_.empty() && events_.empty() && how_.now() - last_batch_ < how_.batch_interval &&
         std::none_of(deltas_.begin(), deltas_.end(),
                      [](const auto& d) { return d.second.first_index == 0; });
}

void engine_host::on_pass(std::size_t tokens) {
  if (!deltas_.empty() && tokens > short_pass_tokens_max) flush();
}

void engine_host::on_work(std::span<const engine::job_id> jobs) {
  if (!how_.board) return;
  at_hand_.clear();
  {
    std::lock_guard lock{mutex_};
    for (auto id : jobs)
      if (auto i = routes_.find(id); i != routes_.end()) at_hand_.push_back(i->second.key);
  }
  how_.board->at_hand(at_hand_);
}

void engine_host::on_cost(engine::job_id job, const engine::job_cost& cost) {
  events_.costs.emplace_back(job, cost);
}

/// What goes at once must not leave its job's costs behind.
void engine_host::take_cost(engine::job_id job, engine_events& into) {
  const auto of_job = [job](const auto& x) { return x.first == job; };
  std::copy_if(events_.costs.begin(), events_.costs.end(), std::back_inserter(into.costs), of_job);
  std::erase_if(events_.costs, of_job);
}

void engine_host::flush() {
  if (planted::is(planted::bug::lose_last_batch))
    std::erase_if(deltas_, [](const auto& d) { return d.second.why != engine::finish::none; });
  if (!deltas_.empty()) send_tokens();
  // After the tokens: whoever is told that a job is done has all of them.
  if (!events_.empty()) caf::anon_send(worker_, std::exchange(events_, {}));
}

void engine_host::send_tokens() {
  last_batch_ = how_.now();
  const auto deltas = joined(std::exchange(deltas_, {}));
  std::map<std::string, std::vector<const routed_delta*>> by_node;
  for (const auto& d : deltas)
    if (!d.first.reply_to.empty()) by_node[d.first.reply_to].push_back(&d);
  std::vector<engine::job_id> left_out;
  for (const auto& [node, list] : by_node)
    for (auto& e : make_token_batches(how_.worker, how_.generation, list, left_out)) {
      if (planted::is(planted::bug::duplicate_token))
        how_.office->send({node, 0}, {how_.worker, how_.generation}, e);
      how_.office->send({node, 0}, {how_.worker, how_.generation}, std::move(e));
    }
  // A stream with a hole is none, and elsewhere the same would come again.
  for (auto job : left_out) {
    engine_->cancel(job);
    events_.given_up.push_back(
        {job, {"answer_piece_too_large", "a piece of the answer does not fit a message"}, false});
  }
}

void engine_host::audit() {
  std::vector<audit_request> who;
  {
    std::lock_guard lock{mutex_};
    who.swap(audits_);
  }
  if (who.empty()) return;
  const auto report = engine_->audit();
  for (const auto& x : who) {
    msg::draft<msg::Audit> d{1024 + x.keys.size() * 40};
    d->setWorker(how_.worker);
    d->setGeneration(how_.generation);
    d->setLedgerTokens(report.ledger_tokens);
    d->setEngineCells(report.engine_cells);
    d->setReferenced(report.referenced);
    d->setJobs(report.jobs);
    if (how_.hand_over) {
      const auto g = how_.hand_over->read_gauges();
      d->setTransfers(static_cast<std::uint32_t>(g.sending + g.receiving));
      d->setEarlyOpens(static_cast<std::uint32_t>(g.early_opens));
      d->setBuffers(static_cast<std::uint32_t>(g.buffers));
      d->setBuffersFree(static_cast<std::uint32_t>(g.buffers_free));
    }
    d->setAssemblingBytes(x.assembling_bytes);
    auto list = d->initMismatches(static_cast<unsigned>(report.mismatches.size()));
    for (unsigned i = 0; i < list.size(); ++i) list.set(i, report.mismatches[i]);
    auto keys = d->initKeys(static_cast<unsigned>(x.keys.size()));
    for (unsigned i = 0; i < keys.size(); ++i) msg::write(keys[i], x.keys[i]);
    d->setKeyCount(static_cast<std::uint32_t>(x.key_count));
    if (auto e = std::move(d).freeze())
      how_.office->send({x.reply_to, 0}, {how_.worker, how_.generation}, *std::move(e));
  }
}

void engine_host::on_import_ready(engine::job_id job, engine::position keep) {
  how_.hand_over->grant(find(job).key, keep);
}

std::unique_ptr<engine::piece_buffer> engine_host::acquire_piece_buffer(engine::job_id job,
                                                                        std::size_t size) {
  return how_.hand_over->acquire_piece_buffer(find(job).key, size);
}

void engine_host::on_piece(engine::kv_piece piece) {
  const auto key = find(piece.job).key;
  how_.hand_over->send_piece(key, std::move(piece));
}

void engine_host::on_prefill_done(engine::job_id job, engine::position cached,
                                  std::chrono::microseconds queued,
                                  std::chrono::microseconds computed) {
  how_.hand_over->finish_send(find(job).key);
  // At once: the rest of this step may be somebody else's long forward pass.
  engine_events now;
  take_cost(job, now);
  now.prefills.push_back({job, cached, queued, computed});
  caf::anon_send(worker_, std::move(now));
}

void engine_host::on_adopted(engine::job_id job) {
  engine_events now;
  now.adoptions.push_back(job);
  caf::anon_send(worker_, std::move(now));
}

void engine_host::on_started(engine::job_id job, engine::position cached) {
  acceptance what;
  job_route where;
  {
    std::lock_guard lock{mutex_};
    auto i = acceptances_.find(job);
    if (i == acceptances_.end()) return;
    what = std::move(i->second);
    acceptances_.erase(i);
    where = routes_[job];
  }
  msg::draft<msg::Accepted> d{512 + what.echo_text.size()};
  write(d->initKey(), where.key);
  d->setWorker(how_.worker);
  d->setPromptTokens(what.prompt_tokens);
  d->setCachedTokens(cached);
  if (!what.echo_text.empty()) d->setEchoText(msg::whole(what.echo_text));
  if (auto e = std::move(d).freeze())
    how_.office->send({where.reply_to, 0}, {how_.worker, how_.generation}, *std::move(e));
}

void engine_host::on_delta(engine::choice_delta delta) {
  auto where = find(delta.job);
  if (delta.choice == 0) {
    std::lock_guard lock{mutex_};
    sampled_[delta.job] = delta.first_index + static_cast<std::uint32_t>(delta.ids.size());
  }
  deltas_.emplace_back(std::move(where), std::move(delta));
}

void engine_host::on_done(engine::job_id job, std::uint32_t /*sampled*/,
                          std::chrono::microseconds /*decoding*/) {
  events_.ends.push_back(job);
}

void engine_host::on_failed(engine::job_failure failure) {
  events_.failures.push_back(std::move(failure));
}

void engine_host::on_cancelled(engine::job_id job) { events_.cancels.push_back(job); }

void engine_host::on_leaving(engine::job_id job, std::vector<engine::token_id> tokens,
                             std::uint32_t answer) {
  // At once, and behind its last tokens.
  flush();
  engine_events now;
  take_cost(job, now);
  now.departures.push_back({job, std::move(tokens), answer});
  caf::anon_send(worker_, std::move(now));
}

void engine_host::on_stays(engine::job_id job, error why) {
  events_.stays.push_back({job, std::move(why)});
}

void engine_host::on_prefixes(std::span<const std::uint64_t> added,
                              std::span<const std::uint64_t> dropped) {
  events_.blocks_added.insert(events_.blocks_added.end(), added.begin(), added.end());
  events_.blocks_dropped.insert(events_.blocks_dropped.end(), dropped.begin(), dropped.end());
}

}  // namespace troupe::workers
