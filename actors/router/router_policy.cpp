#include "actors/router/router_policy.hpp"

#include <algorithm>
#include <utility>

// The fleet as a shard knows it. Decisions are in decide.cpp, leases in leases.cpp.

namespace troupe::router {

namespace {

bool is_worker(const directory::entry& e) {
  return e.role == msg::Role::PREFILL || e.role == msg::Role::DECODE || e.role == msg::Role::BOTH;
}

std::size_t place_of(msg::Role role) {
  return role == msg::Role::BOTH ? 0 : role == msg::Role::PREFILL ? 1 : 2;
}

}  // namespace

router_policy::router_policy(router_limits limits, std::map<std::string, topology::place> places,
                             std::vector<std::string> models, std::uint64_t first_lease)
    : limits_(limits), models_(std::move(models)), sessions_(limits.sessions_max),
      next_lease_(first_lease), index_(limits.index) {
  for (auto& [host, place] : places) {
    host_ids_[host] = static_cast<host_id>(places_.size());
    places_.push_back(std::move(place));
  }
  distances_.resize(places_.size());
}

router_policy::worker_id router_policy::id_of(const std::string& name) const {
  const auto i = ids_.find(name);
  return i == ids_.end() ? nobody : i->second;
}

router_policy::host_id router_policy::host_of(const std::string& name) const {
  const auto i = host_ids_.find(name);
  return i == host_ids_.end() ? nobody : i->second;
}

const std::string& router_policy::name_of(worker_id id) const {
  static const std::string none;
  return id == nobody ? none : workers_[id].entry.name;
}

void router_policy::worker::set_entry(const directory::entry& e) {
  entry = e;
  slow = !e.slow.empty();
  slots = e.slots;
  kv_bytes_per_token = e.kv_bytes_per_token;
  if (last.kv_total == 0) kv_total = e.kv_tokens;
}

void router_policy::worker::set_costs(capacity::cost_model c) {
  costs = std::move(c);
  prefill_seconds = costs.in_seconds().alpha;
  prefill_growth = costs.in_seconds().alpha2;
  other_stream = static_cast<float>(decode(other_prompt_tokens, other_answer_tokens));
}

double router_policy::worker::decode(std::uint32_t prompt, std::uint32_t answer) const {
  const auto alone = costs.decode_seconds(prompt, answer, costs.about().usual_batch);
  return costs.origin() == capacity::provenance::calibrated
             ? alone
             : alone / std::max<std::uint32_t>(1, slots);
}

void router_policy::worker::set_loaded_costs() {
  if (entry.prefill_speed > 0 || entry.decode_speed > 0)
    set_costs(capacity::cost_model::from_speeds(entry.prefill_speed, entry.decode_speed,
                                                entry.device_class, entry.name));
}

router_policy::worker* router_policy::incarnation(worker_id id, std::uint64_t generation) {
  if (id == nobody) return nullptr;
  auto& w = workers_[id];
  return w.present && w.entry.generation == generation ? &w : nullptr;
}

/// Rows of the table are computed as they are asked for: comparing names takes too long for each
/// pair of each decision.
topology::distance router_policy::apart(host_id a, host_id b) {
  if (a == nobody || b == nobody) return topology::distance::remote;
  auto& row = distances_[a];
  if (row.empty())
    for (const auto& p : places_) row.push_back(topology::between(places_[a], p));
  return row[b];
}

void router_policy::update(const directory::change& c) {
  for (const auto& e : c.removed)
    if (const auto id = id_of(e.name); id != nobody) leave(id);
  for (const auto& e : c.added_or_changed) {
    if (!is_worker(e)) continue;
    const auto [i, fresh] = ids_.try_emplace(e.name, static_cast<worker_id>(workers_.size()));
    if (fresh) workers_.emplace_back();
    auto& w = workers_[i->second];
    if (w.present && w.entry.generation == e.generation && w.entry.model == e.model &&
        w.entry.role == e.role) {
      // It is known while it loads, and measures its speeds at the end of that.
      const bool measured = e.prefill_speed != w.entry.prefill_speed ||
                            e.decode_speed != w.entry.decode_speed;
      w.set_entry(e);
      if (measured && !w.speeds.any() && !calibrated_.contains(e.pool)) w.set_loaded_costs();
      w.host = host_of(e.host);
      set_ready(w, i->second);
      continue;
    }
    leave(i->second);
    enter(i->second, e);
  }
}

/// A new incarnation holds nothing of the old one. One that was only out of sight, behind a lost
/// link, still has what was leased to it.
void router_policy::enter(worker_id id, const directory::entry& e) {
  auto& w = workers_[id];
  w = worker{};
  w.set_entry(e);
  w.set_costs(w.costs);
  w.present = true;
  w.host = host_of(e.host);
  w.holder = index_.join();
  w.life = ++lives_;
  w.of = &pools_[e.model];
  w.of->members.push_back(id);
  if (const auto c = calibrated_.find(e.pool); c != calibrated_.end())
    w.set_costs(c->second);
  else
    w.set_loaded_costs();
  set_ready(w, id);
  put_back(w);
}

void router_policy::leave(worker_id id) {
  auto& w = workers_[id];
  if (!w.present) return;
  set_bytes_per_token(w, 0);
  std::erase(w.of->members, id);
  w.of->ready[place_of(w.entry.role)].remove(id);
  index_.leave(w.holder);
  w.present = false;
  count_untold(w);
}

void router_policy::count_untold(worker& w) {
  const auto state = w.entry.state;
  const bool ready = w.present && !w.told && state == msg::EntryState::READY;
  const bool lacks = ready || (w.present && !w.told && state == msg::EntryState::DRAINING);
  untold_ -= std::exchange(w.lacks, lacks) ? 1 : 0;
  untold_ += lacks ? 1 : 0;
  untold_ready_ -= std::exchange(w.lacks_ready, ready) ? 1 : 0;
  untold_ready_ += ready ? 1 : 0;
}

void router_policy::set_ready(worker& w, worker_id id) {
  auto& ready = w.of->ready[place_of(w.entry.role)];
  if (w.entry.state == msg::EntryState::READY)
    ready.add(id);
  else
    ready.remove(id);
  count_untold(w);
}

void router_policy::set_bytes_per_token(worker& w, float value) {
  const auto known = w.last.bytes_per_token;
  w.of->bytes_per_token_sum += static_cast<double>(value) - static_cast<double>(known);
  if (known > 0) --w.of->bytes_per_token_count;
  if (value > 0) ++w.of->bytes_per_token_count;
  if (w.of->bytes_per_token_count == 0) w.of->bytes_per_token_sum = 0;  // and no rounding stays
  w.last.bytes_per_token = value;
}

void router_policy::set_costs(const std::string& pool, capacity::cost_model costs) {
  for (auto& w : workers_)
    if (w.present && w.entry.pool == pool) w.set_costs(costs);
  calibrated_.insert_or_assign(pool, std::move(costs));
}

void router_policy::report(const std::string& name, std::uint64_t generation,
                           const worker_report& r, time_point now) {
  auto* known = incarnation(id_of(name), generation);
  if (!known) return;
  auto& w = *known;
  const auto bytes = r.bytes_per_token;
  // Not a number is never within.
  const bool believed = bytes >= bytes_per_token_min && bytes <= bytes_per_token_max;
  set_bytes_per_token(w, believed ? bytes : 0);
  w.last = r;
  if (!believed) w.last.bytes_per_token = 0;
  w.reported = true;
  w.reported_at = now;
  if (w.speeds.add(r.prefilled_tokens, r.sampled_tokens, r.busy_us, r.passes) &&
      !calibrated_.contains(w.entry.pool))
    w.set_costs(capacity::cost_model::from_speeds(w.speeds.prefill_tokens_per_second(),
                                                  w.speeds.decode_tokens_per_second(), {}, name));
  // By measured speeds a sampled token costs what it took in whatever batch there was, and an
  // engine with one stream would seem to be busy all the time.
  const bool calibrated = w.costs.origin() == capacity::provenance::calibrated;
  w.work.add(r.prefilled_tokens, r.sampled_tokens, w.prefill_seconds,
             calibrated ? double{w.other_stream} / other_answer_tokens : 0, now);
  w.lately = static_cast<float>(w.work.seconds());
  w.unseen = static_cast<float>(w.work.unseen());
  w.kv_used = r.kv_used;
  w.kv_total = r.kv_total > 0 ? r.kv_total : w.entry.kv_tokens;
  const auto streams = r.running + r.queued + r.preparing;
  w.other_streams = streams > w.leases ? streams - w.leases : 0;
  if (now - w.interval_began >= report_interval_min) {
    w.interval_began = now;
    w.since_us[1] = w.since_us[0];
    w.since_us[0] = 0;
    ++w.interval;
  }
  set_queue(w, static_cast<double>(r.queued_tokens) * w.prefill_seconds);
}

bool router_policy::prefixes(const std::string& name, std::uint64_t generation,
                             std::uint64_t sequence, bool reset,
                             const std::vector<std::uint64_t>& added,
                             const std::vector<std::uint64_t>& dropped, bool more) {
  auto* known = incarnation(id_of(name), generation);
  if (!known) return true;
  auto& w = *known;
  if (reset) {
    index_.leave(w.holder);
    w.holder = index_.join();
    w.unheeded = 0;
    w.telling = true;
    w.told = false;
    count_untold(w);
  } else if (w.unheeded > 0 || sequence != w.next_event) {
    w.telling = w.told = false;
    count_untold(w);
    return w.unheeded++ % resync_again_messages != 0;
  }
  w.next_event = sequence + 1;
  if (w.telling && !more) {
    w.telling = false;
    w.told = true;
    count_untold(w);
  }
  index_.drop(w.holder, dropped);
  const auto held = std::min(index_.held(w.holder), limits_.blocks_per_worker_max);
  index_.add(w.holder,
             std::span{added}.first(std::min(added.size(), limits_.blocks_per_worker_max - held)));
  return true;
}

void router_policy::expect_all(const std::string& name, std::uint64_t generation) {
  auto* known = incarnation(id_of(name), generation);
  if (!known) return;
  known->telling = known->told = false;
  count_untold(*known);
  // As after a gap that was asked about.
  known->unheeded = std::max<std::uint32_t>(known->unheeded, 1);
}

std::vector<router_policy::incomplete> router_policy::untold() const {
  std::vector<incomplete> all;
  if (untold_ == 0) return all;
  for (const auto& w : workers_)
    if (w.lacks)
      all.push_back(
          {w.entry.name, w.entry.generation, w.lacks_ready, w.telling ? w.next_event : 0});
  return all;
}

bool router_policy::any_ready() const {
  return std::any_of(pools_.begin(), pools_.end(), [](const auto& p) {
    return std::any_of(p.second.ready.begin(), p.second.ready.end(),
                       [](const auto& role) { return role.pool_size() > 0; });
  });
}

double router_policy::cached_share(const std::string& model) const {
  const auto i = pools_.find(model);
  return i == pools_.end() ? 1 : i->second.correction.ratio();
}

std::vector<router_policy::worker_view> router_policy::workers() const {
  std::vector<worker_view> all;
  for (const auto& w : workers_)
    if (w.present)
      all.push_back(
          {w.entry, w.last, w.reported, w.leased_tokens, w.leases, index_.held(w.holder),
           known_queue(w, w.reported_at).value_or(static_cast<double>(w.prefill_us) / 1e6),
           w.costs.origin()});
  return all;
}

}  // namespace troupe::router
