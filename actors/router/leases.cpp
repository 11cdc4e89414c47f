#include "actors/router/router_policy.hpp"

#include <algorithm>

// The books of a shard's leases.

namespace troupe::router {

template <class F>
void router_policy::for_each_side(lease& l, F&& f) {
  for (auto* s : {&l.prefill, &l.decode})
    if (auto* w = incarnation(s->who, s->generation)) f(*w, *s);
}

// Used by the fleet's part, too.
void router_policy::put_back(worker& w) {
  for (auto& [number, held] : leases_)
    for_each_side(held, [&w, &l = held](worker& side, share& s) {
      if (&side == &w) s.put_on(w, l.quarantine);
    });
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
  if (!host_ids_.contains(host)) return;  // what strangers call themselves is not remembered
  auto& known = incarnations_[host];
  if (incarnation <= known) return;
  known = incarnation;
  release_all([&](const lease& l) { return l.host == host && l.incarnation < incarnation; });
}

router_policy::share router_policy::share_of(const candidate& c, std::uint32_t prefill,
                                             std::uint32_t answer, std::uint32_t kv_tokens,
                                             const question& k) const {
  auto us = [](double seconds) { return static_cast<std::uint64_t>(std::max(0.0, seconds) * 1e6); };
  const auto& costs = c.w->costs;
  share s;
  s.who = c.id;
  s.generation = c.w->entry.generation;
  s.tokens = std::uint64_t{prefill} + answer;
  if (prefill > 0) s.prefill_us = us(costs.prefill_seconds(k.prompt, k.prompt - prefill));
  if (answer > 0) s.decode_us = us(c.w->decode(k.prompt, answer));
  s.kv_tokens = kv_tokens;
  return s;
}

std::uint64_t router_policy::grant(const question& k, share prefill, share decode,
                                   std::uint32_t promised) {
  const auto number = next_lease_++;
  auto& l = leases_[number];
  l = {k.q.host, prefill, decode, k.q.incarnation, k.q.quarantine, promised, &k.of};
  for_each_side(l, [&l](worker& w, share& s) { s.put_on(w, l.quarantine); });
  return number;
}

void router_policy::release(std::uint64_t id) {
  auto i = leases_.find(id);
  if (i == leases_.end())
    return;  // released before, or granted by an earlier incarnation of this shard
  // A restarted worker began at zero: giving back to it would make it look idle.
  auto& l = i->second;
  for_each_side(l, [&l](worker& w, share& s) { s.take_from(w, l.quarantine); });
  leases_.erase(i);
}

void router_policy::release_prefill(std::uint64_t id) {
  auto i = leases_.find(id);
  if (i == leases_.end()) return;
  auto& l = i->second;
  if (l.prefill.who == nobody) {
    if (auto* w = incarnation(l.decode.who, l.decode.generation)) l.decode.prefilled(*w);
    return;
  }
  if (auto* w = incarnation(l.prefill.who, l.prefill.generation))
    l.prefill.take_from(*w, l.quarantine);
  l.prefill = {};
}

void router_policy::clear(std::uint64_t id) {
  auto i = leases_.find(id);
  if (i == leases_.end() || !i->second.quarantine) return;
  i->second.quarantine = false;
  for_each_side(i->second, [](worker& w, share&) { --w.quarantined; });
}

void router_policy::learn(std::uint64_t id, const route_outcome& o) {
  const auto i = leases_.find(id);
  if (i == leases_.end()) return;
  auto& l = i->second;
  if (o.prompt_tokens > 0 && l.promised > 0)
    l.of->correction.add(std::min(l.promised, o.prompt_tokens), o.cached_tokens);
  l.promised = 0;
  if (l.prefill.who == nobody || l.decode.who == nobody) return;
  const auto from = workers_[l.prefill.who].host, to = workers_[l.decode.who].host;
  if (from != nobody && to != nobody)
    speeds_.add(from, to, apart(from, to), o.transfer_bytes, o.wire_us);
}

std::vector<router_policy::lease_view> router_policy::leases() const {
  std::vector<lease_view> all;
  for (const auto& [id, l] : leases_)
    all.push_back({id, l.host, l.incarnation, name_of(l.prefill.who), name_of(l.decode.who),
                   l.prefill.tokens + l.decode.tokens});
  return all;
}

}  // namespace troupe::router
