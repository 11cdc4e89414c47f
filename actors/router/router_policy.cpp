#include "actors/router/router_policy.hpp"

#include "actors/directory/readiness.hpp"
#include "messages/prompt_chain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace troupe::router {

namespace {

bool is_worker(const directory::entry& e) {
  return e.role == msg::Role::PREFILL || e.role == msg::Role::DECODE || e.role == msg::Role::BOTH;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// From 1; 0: it is not among them.
std::size_t place_of(const std::string& name, const std::vector<std::string>& names) {
  const auto i = std::find(names.begin(), names.end(), name);
  return i == names.end() ? 0 : static_cast<std::size_t>(i - names.begin()) + 1;
}

}  // namespace

router_policy::router_policy(router_limits limits, std::map<std::string, topology::place> places,
                             std::vector<std::string> models, std::uint64_t first_lease)
    : limits_(limits), places_(std::move(places)), models_(std::move(models)),
      sessions_(limits.sessions_max), next_lease_(first_lease) {}

void router_policy::update(const directory::change& c) {
  for (const auto& e : c.removed) workers_.erase(e.name);
  for (const auto& e : c.added_or_changed) {
    if (!is_worker(e)) continue;
    auto [i, fresh] = workers_.try_emplace(e.name);
    auto& w = i->second;
    if (!fresh && w.entry.generation == e.generation) {
      w.entry = e;
      continue;
    }
    // A new incarnation holds nothing of the old one. One that was only out of sight, behind a lost
    // link, still has what was leased to it.
    w = worker{};
    w.entry = e;
    for (const auto& [id, held] : leases_)
      for_each_side(held, [&w, &l = held](worker& side, std::uint64_t tokens) {
        if (&side == &w) l.put_on(w, tokens);
      });
  }
}

router_policy::worker* router_policy::incarnation(const std::string& name,
                                                  std::uint64_t generation) {
  auto i = workers_.find(name);
  return i == workers_.end() || i->second.entry.generation != generation ? nullptr : &i->second;
}

template <class F>
void router_policy::for_each_side(const lease& l, F&& f) {
  auto side = [&](const std::string& name, std::uint64_t generation, std::uint64_t tokens) {
    if (auto* w = incarnation(name, generation)) f(*w, tokens);
  };
  side(l.prefill, l.prefill_generation, l.prefill_tokens);
  side(l.decode, l.decode_generation, l.decode_tokens);
}

template <class Which>
void router_policy::release_all(Which&& which) {
  std::vector<std::uint64_t> gone;
  for (const auto& [id, l] : leases_)
    if (which(l)) gone.push_back(id);
  for (auto id : gone) release(id);
}

void router_policy::lose_host(const std::string& host) {
  incarnations_.erase(host);  // it may come back with its clock set back
  release_all([&](const lease& l) { return l.host == host; });
}

void router_policy::hub_speaks(const std::string& host, std::uint64_t incarnation) {
  if (!places_.contains(host)) return;  // what strangers call themselves is not remembered
  auto& known = incarnations_[host];
  if (incarnation <= known) return;
  known = incarnation;
  release_all([&](const lease& l) { return l.host == host && l.incarnation < incarnation; });
}

float router_policy::bytes_per_token(const std::string& model) const {
  float sum = 0;
  int count = 0;
  for (const auto& [name, w] : workers_)
    if (w.entry.model == model && w.last.bytes_per_token > 0) {
      sum += w.last.bytes_per_token;
      ++count;
    }
  return count == 0 ? default_bytes_per_token : sum / static_cast<float>(count);
}

std::uint32_t router_policy::cached_tokens(const worker& w, const route_query& q,
                                           float bytes_per_token) const {
  std::size_t blocks = 0;
  while (blocks < q.chain.size() && w.blocks.contains(q.chain[blocks])) ++blocks;
  return static_cast<std::uint32_t>(static_cast<float>(blocks * msg::chain_block_bytes) /
                                    bytes_per_token);
}

std::vector<router_policy::candidate> router_policy::ready(const route_query& q,
                                                           msg::Role role) const {
  std::vector<candidate> found;
  const auto per_token = bytes_per_token(q.model);
  for (const auto& [name, w] : workers_) {
    if (w.entry.model != q.model || w.entry.role != role || w.entry.state != msg::EntryState::READY)
      continue;
    if (q.quarantine && w.quarantined > 0) continue;
    // Our own leases know what reports do not show yet; reports know of other shards. The larger is
    // nearer to the truth.
    const auto outstanding = std::max<std::uint64_t>(w.leased_tokens,
                                                     w.reported ? w.last.queued_tokens : 0);
    found.push_back({&w, cached_tokens(w, q, per_token), static_cast<double>(outstanding),
                     place_of(name, q.exclude), w.entry.slow.empty() ? 0U : 1U});
  }
  return found;
}

topology::distance router_policy::apart(const std::string& host_a,
                                        const std::string& host_b) const {
  auto a = places_.find(host_a), b = places_.find(host_b);
  if (a == places_.end() || b == places_.end()) return topology::distance::remote;
  return topology::between(a->second, b->second);
}

route_refusal router_policy::refusal(const route_query& q) const {
  if (!contains(models_, q.model))
    return {404, "model_not_found", "The model '" + q.model + "' does not exist in this cluster.",
            0};
  directory::readiness engines;
  for (const auto& [name, w] : workers_)
    if (w.entry.model == q.model) engines.add(w.entry);
  if (q.quarantine && engines.ready())
    return {503, quarantine_full,
            "Each engine already tries another request that may crash it; this one waits.", 100};
  return {503, "no_ready_worker",
          "No engine can serve the model '" + q.model + "' now: " + engines.reasons() + ".", 1'000};
}

std::variant<route_choice, route_refusal> router_policy::decide(const route_query& q) {
  hub_speaks(q.host, q.incarnation);
  if (auto known = incarnations_.find(q.host);
      known != incarnations_.end() && q.incarnation < known->second)
    return route_refusal{503, "hub_replaced", "The hub that asked has been replaced.", 0};
  if (leases_.size() >= limits_.leases_max)
    return route_refusal{503, "router_overloaded",
                         "The router holds as many open requests as it may; try again later.",
                         1'000};
  const auto prompt = std::max<std::uint64_t>(
                          1, static_cast<std::uint64_t>(static_cast<float>(q.prompt_bytes) /
                                                        bytes_per_token(q.model))) +
                      q.resumed_tokens;
  const std::uint64_t answer = std::uint64_t{std::max<std::uint32_t>(1, q.choices)} *
                               std::min(q.max_tokens == 0 ? answer_tokens_counted_max
                                                          : q.max_tokens,
                                        answer_tokens_counted_max);
  if (!q.move_from.empty()) return decide_move(q, answer);
  auto uncached = [&](const candidate& c) {
    return prompt - std::min<std::uint64_t>(prompt, c.cached);
  };

  auto failures = [](const candidate& c) { return c.failed > 0 ? 1U : 0U; };

  // A score is work: tokens ahead of ours, and what of our own prompt is not cached.
  const auto both = ready(q, msg::Role::BOTH);
  const auto prefills = ready(q, msg::Role::PREFILL);
  const auto decodes = ready(q, msg::Role::DECODE);
  std::vector<option> options;
  for (const auto& c : both)
    options.push_back({plan::local, nullptr, &c, failures(c), c.failed, c.slow,
                       c.work + static_cast<double>(uncached(c)), apart(q.host, c.w->entry.host)});
  for (const auto& d : decodes) {
    const auto suffix = uncached(d);
    if (suffix <= limits_.decode_prefills_tokens_max && d.cached > 0)
      options.push_back({plan::decode_prefills, nullptr, &d, failures(d), d.failed, d.slow,
                         d.work + static_cast<double>(suffix), topology::distance::same_host});
    for (const auto& p : prefills)
      options.push_back({d.cached > 0 ? plan::from_position : plan::full, &p, &d,
                         failures(p) + failures(d), p.failed + d.failed, p.slow + d.slow,
                         p.work + static_cast<double>(uncached(p)) + d.work +
                             static_cast<double>(suffix) / transfer_tokens_per_compute_token,
                         apart(p.w->entry.host, d.w->entry.host)});
  }
  if (options.empty()) return refusal(q);
  prefer_last_pair(q, options);
  // Where all have failed it, those that did so longest ago: they had the time to come back.
  auto better = [](const option& a, const option& b) {
    return std::tuple{a.excluded, a.failed, a.slow, a.score, a.far} <
           std::tuple{b.excluded, b.failed, b.slow, b.score, b.far};
  };
  std::partial_sort(options.begin(),
                    options.begin() + std::min<std::ptrdiff_t>(2, std::ssize(options)),
                    options.end(), better);
  const auto& best = options.front();
  route_choice c;
  c.how = best.how;
  if (best.prefill) c.prefill = best.prefill->w->entry;
  c.decode = best.decode->w->entry;
  c.reason = fmt::format("score {:.0f} ({})", best.score, topology::to_string(best.far));
  if (best.slow > 0) c.reason += ", slow, but nobody else can";
  if (best.last_pair) c.reason += ", the session's last pair";
  if (options.size() > 1)
    c.reason += fmt::format(", next {} {:.0f}", options[1].decode->w->entry.name, options[1].score);
  grant(c, q, best.prefill ? uncached(*best.prefill) : 0,
        answer + (best.prefill ? 0 : uncached(*best.decode)));
  if (!q.session.empty()) sessions_.note(q.model, q.session, {c.prefill.name, c.decode.name});
  return c;
}

/// The least work ahead wins, then the nearest. Only a worker of the same role, that takes KV.
std::variant<route_choice, route_refusal> router_policy::decide_move(const route_query& q,
                                                                     std::uint64_t answer) {
  const auto from = workers_.find(q.move_from);
  std::vector<candidate> places;
  if (from != workers_.end() && !from->second.entry.transfer_address.empty())
    places = ready(q, from->second.entry.role);
  std::erase_if(places, [&](const candidate& c) {
    return c.w == &from->second || c.w->entry.transfer_address.empty();
  });
  if (places.empty())
    return route_refusal{503, "no_place_to_move",
                         "No other engine can take a stream over from " + q.move_from + ".", 0};
  const auto& source = from->second.entry;
  const auto best = *std::min_element(
      places.begin(), places.end(), [&](const candidate& a, const candidate& b) {
        return std::tuple{a.failed, a.work, apart(source.host, a.w->entry.host)} <
               std::tuple{b.failed, b.work, apart(source.host, b.w->entry.host)};
      });
  route_choice c;
  c.how = plan::move;
  c.prefill = source;
  c.decode = best.w->entry;
  c.reason = fmt::format("{} leaves; {:.0f} tokens ahead", source.name, best.work);
  grant(c, q, 0, answer);
  if (!q.session.empty()) sessions_.note(q.model, q.session, {"", c.decode.name});
  return c;
}

void router_policy::prefer_last_pair(const route_query& q, std::vector<option>& options) const {
  const auto* last = q.session.empty() ? nullptr : sessions_.find(q.model, q.session);
  if (!last) return;
  for (auto& o : options) {
    if (o.decode->w->entry.name != last->decode) continue;
    if (o.prefill && o.prefill->w->entry.name != last->prefill) continue;
    o.score -= session_bonus_tokens;
    o.last_pair = true;
  }
}

void router_policy::grant(route_choice& c, const route_query& q, std::uint64_t prefill_tokens,
                          std::uint64_t decode_tokens) {
  c.lease = next_lease_++;
  const auto& l = leases_[c.lease] = {
      q.host,        c.prefill.name,       c.decode.name,       prefill_tokens,
      decode_tokens, c.prefill.generation, c.decode.generation, q.incarnation,
      q.quarantine};
  for_each_side(l, [&l](worker& w, std::uint64_t tokens) { l.put_on(w, tokens); });
}

void router_policy::release(std::uint64_t id) {
  auto i = leases_.find(id);
  if (i == leases_.end())
    return;  // released before, or granted by an earlier incarnation of this shard
  // A restarted worker began at zero: giving back to it would make it look idle.
  for_each_side(i->second,
                [&](worker& w, std::uint64_t tokens) { i->second.take_from(w, tokens); });
  leases_.erase(i);
}

void router_policy::release_prefill(std::uint64_t id) {
  auto i = leases_.find(id);
  if (i == leases_.end() || i->second.prefill.empty()) return;
  auto& l = i->second;
  if (auto* w = incarnation(l.prefill, l.prefill_generation)) l.take_from(*w, l.prefill_tokens);
  l.prefill.clear();
}

void router_policy::clear(std::uint64_t id) {
  auto i = leases_.find(id);
  if (i == leases_.end() || !i->second.quarantine) return;
  i->second.quarantine = false;
  for_each_side(i->second, [](worker& w, std::uint64_t) { --w.quarantined; });
}

void router_policy::report(const std::string& name, std::uint64_t generation,
                           const worker_report& r) {
  auto* w = incarnation(name, generation);
  if (!w) return;
  w->last = r;
  // Not a number is never within.
  if (!(r.bytes_per_token >= bytes_per_token_min && r.bytes_per_token <= bytes_per_token_max))
    w->last.bytes_per_token = 0;
  w->reported = true;
}

bool router_policy::prefixes(const std::string& name, std::uint64_t generation,
                             std::uint64_t sequence, bool reset,
                             const std::vector<std::uint64_t>& added,
                             const std::vector<std::uint64_t>& dropped) {
  auto* known = incarnation(name, generation);
  if (!known) return true;
  auto& w = *known;
  if (reset) {
    w.blocks.clear();
    w.unheeded = 0;
  } else if (w.unheeded > 0 || sequence != w.next_event) {
    return w.unheeded++ % resync_again_messages != 0;
  }
  w.next_event = sequence + 1;
  for (auto h : dropped) w.blocks.erase(h);
  for (auto h : added)
    if (w.blocks.size() < limits_.blocks_per_worker_max) w.blocks.insert(h);
  return true;
}

std::vector<router_policy::lease_view> router_policy::leases() const {
  std::vector<lease_view> all;
  for (const auto& [id, l] : leases_)
    all.push_back({id, l.host, l.incarnation, l.prefill, l.decode,
                   (l.prefill.empty() ? 0 : l.prefill_tokens) + l.decode_tokens});
  return all;
}

std::vector<router_policy::worker_view> router_policy::workers() const {
  std::vector<worker_view> all;
  for (const auto& [name, w] : workers_)
    all.push_back({w.entry, w.last, w.reported, w.leased_tokens, w.leases, w.blocks.size()});
  return all;
}

}  // namespace troupe::router
