#include "actors/directory/readiness.hpp"
#include "actors/router/router_policy.hpp"
#include "messages/prompt_chain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <tuple>

// One decision: who could serve, what each would cost, which of them it is.

namespace troupe::router {

namespace {

constexpr std::size_t of_both = 0, of_prefill = 1, of_decode = 2;
constexpr std::size_t none = ~std::size_t{0};

/// Blocks of a prompt that tell conversations apart, where the client names none: turn after turn
/// has them alike, and what all prompts of a workload begin with is mostly shorter.
constexpr std::size_t conversation_block = 7;

/// Of prefills at the same distance from a decode worker: the best, and another to draw among.
constexpr unsigned pairs_of_distance = 2;

/// From 1; 0: it is not among them.
std::uint32_t place_of(const std::string& name, const std::vector<std::string>& names) {
  const auto i = std::find(names.begin(), names.end(), name);
  return i == names.end() ? 0 : static_cast<std::uint32_t>(i - names.begin()) + 1;
}

// A rank is three figures, and so is the sum of two: workers that failed this request before; the
// sum of their places among those that did (where all have failed it, those that did so longest
// ago: they had the time to come back); workers that are far slower than usual.
constexpr unsigned excluded_shift = 30, failed_shift = 4;

std::uint32_t rank_of(std::uint32_t failed, bool slow) {
  return (failed > 0 ? 1U : 0U) << excluded_shift |
         std::min(failed, (1U << (excluded_shift - failed_shift - 1)) - 1) << failed_shift |
         (slow ? 1U : 0U);
}
bool is_slow(std::uint32_t rank) { return (rank & ((1U << failed_shift) - 1)) != 0; }

int ms(double seconds) {
  return static_cast<int>(std::lround(std::clamp(seconds, -1e6, 1e6) * 1e3));
}

double tie_of(double score) { return std::max(tie_seconds, tie_share * score); }

template <class O>
bool better(const O& a, const O& b) {
  return std::tie(a.rank, a.score, a.far) < std::tie(b.rank, b.score, b.far);
}

bool knows(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

route_refusal router_policy::refusal(const route_query& q) const {
  if (!knows(models_, q.model))
    return {404, "model_not_found", "The model '" + q.model + "' does not exist in this cluster.",
            0};
  directory::readiness engines;
  if (const auto p = pools_.find(q.model); p != pools_.end()) {
    std::vector<const directory::entry*> by_name;
    for (auto id : p->second.members) by_name.push_back(&workers_[id].entry);
    std::sort(by_name.begin(), by_name.end(),
              [](const auto* a, const auto* b) { return a->name < b->name; });
    for (const auto* e : by_name) engines.add(*e);
  }
  if (q.quarantine && engines.ready())
    return {503, quarantine_full,
            "Each engine already tries another request that may crash it; this one waits.", 100};
  return {503, engines.failed() ? engines_given_up : no_ready_worker,
          "No engine can serve the model '" + q.model + "' now: " + engines.reasons() + ".", 1'000};
}

router_policy::question router_policy::understand(const route_query& q, pool& of) const {
  question k{.q = q, .of = of};
  k.bytes_per_token = of.bytes_per_token_count == 0
                          ? static_cast<double>(default_bytes_per_token)
                          : of.bytes_per_token_sum / of.bytes_per_token_count;
  k.prompt = static_cast<std::uint32_t>(std::clamp(q.prompt_bytes / k.bytes_per_token, 1.0, 1e9)) +
             std::min(q.resumed_tokens, 1'000'000'000U);
  k.answer = std::max<std::uint32_t>(1, std::min(q.choices, 65'536U)) *
             std::min(q.max_tokens == 0 ? answer_tokens_counted_max : q.max_tokens,
                      answer_tokens_counted_max);
  k.host = host_of(q.host);
  if (!q.session.empty())
    if (const auto* last = sessions_.find(q.model, q.session)) {
      k.last_prefill = id_of(last->prefill);
      k.last_decode = id_of(last->decode);
    }
  return k;
}

void router_policy::find(const question& k, std::size_t role, std::vector<candidate>& found) {
  found.clear();
  auto& ready = k.of.ready[role];
  if (ready.pool_size() == 0) return;
  const auto workload = std::hash<std::string>{}(k.q.workload);
  const auto& chain = k.q.chain;
  const auto conversation = !k.q.session.empty() ? std::hash<std::string>{}(k.q.session)
                            : chain.empty()      ? 0
                                            : chain[std::min(chain.size() - 1, conversation_block)];
  const auto candidates = ready.of(workload, conversation);
  for (auto id : candidates) {
    __builtin_prefetch(&workers_[id].holder);
    __builtin_prefetch(&workers_[id].decode_us);
  }
  for (auto id : candidates) {
    const auto& w = workers_[id];
    if (k.q.quarantine && w.quarantined > 0) continue;
    auto& c = found.emplace_back();
    c.id = id;
    c.w = &w;
    c.rank = rank_of(k.q.exclude.empty() ? 0 : place_of(w.entry.name, k.q.exclude), w.slow);
  }
}

/// One walk of the chain for all candidates; then what each will have soon, if guesses are right.
void router_policy::find_cached(const question& k) {
  const auto& chain = k.q.chain;
  if (chain.empty()) return;
  holders_.clear();
  for (const auto& found : found_)
    for (const auto& c : found) holders_.push_back(c.w->holder);
  blocks_.resize(holders_.size());
  index_.longest(chain, holders_, blocks_);
  std::size_t i = 0;
  for (const auto& found : found_)
    for (const auto& c : found) {
      if (blocks_[i] < chain.size()) guesses_.prefetch(c.w->life, chain[blocks_[i]]);
      ++i;
    }
  const double tokens_per_block = static_cast<double>(msg::chain_block_bytes) / k.bytes_per_token;
  i = 0;
  for (std::size_t role = 0; role < found_.size(); ++role)
    for (auto& c : found_[role]) {
      c.blocks = blocks_[i];
      // A decode worker keeps a prompt when its stream has ended, and says so then.
      const double guessed = role == of_decode
                                 ? 0
                                 : guesses_.beyond(c.w->life, chain, c.blocks, k.q.now);
      const double tokens = (c.blocks + guessed) * tokens_per_block;
      c.cached = std::min(k.prompt, k.of.correction.apply(static_cast<std::uint32_t>(tokens)));
      c.promised = guessed > 0 ? 0 : static_cast<std::uint32_t>(tokens);
      ++i;
    }
}

/// By the longest beginning that anybody has.
bool router_policy::begins_popularly(const route_query& q) {
  if (q.chain.empty() || blocks_.empty()) return false;
  const auto most = *std::max_element(blocks_.begin(), blocks_.end());
  return most > 0 && popular_.note(q.chain[most - 1], q.now) >= popular_prompts;
}

void router_policy::weigh(const question& k, std::vector<candidate>& found,
                          bool prefills_only) const {
  double known = 0;
  std::size_t knowing = 0;
  for (auto& c : found) {
    const auto queue = known_queue(*c.w, k.q.now);
    c.queue = queue.value_or(-1);
    if (!queue) continue;
    known += *queue;
    ++knowing;
  }
  const double usual = knowing == 0 ? 0
                                    : std::min(known / static_cast<double>(knowing),
                                               unknown_queue_seconds_max);
  // Of one that is new, or out of sight until now, what the others do is expected.
  const double work = usual_work(found);
  const double crowded = congestion(work);
  const auto lately = [&](const candidate& c) { return c.w->lately + work * c.w->unseen; };
  double least = std::numeric_limits<double>::infinity();
  for (const auto& c : found) least = std::min(least, lately(c));
  for (auto& c : found) {
    if (c.queue < 0) c.queue = usual + static_cast<double>(c.w->prefill_us) / 1e6;
    c.compute = c.w->prefill(k.prompt, c.cached);
    c.weight = k.popular ? limits_.others_weight
                         : std::max(limits_.others_weight, limits_.crowded_weight * crowded);
    c.trend = std::min(trend_weight * crowded * (lately(c) - least), c.w->prefill(k.prompt, 0));
    c.pressure = prefills_only ? 0 : pressure(*c.w, k);
  }
}

/// Seconds of work in the last window that are usual among them, as far as anybody knows.
double router_policy::usual_work(const std::vector<candidate>& found) {
  double done = 0, seen = 0;
  for (const auto& c : found) {
    done += c.w->lately;
    seen += 1 - c.w->unseen;
  }
  return seen > 0 ? done / seen : 0;
}

double router_policy::congestion(double usual_work) {
  const double busy = usual_work / std::chrono::duration<double>(work_meter::window).count();
  return busy < 1 ? std::min(busy / (1 - busy), congestion_max) : congestion_max;
}

/// Somebody has to compute what nobody has; in vain is what one who has more of it would not. By
/// the worker's own speed: a slow one is slow by what it computes, not by what it might have
/// cached.
void router_policy::weigh_others(const question& k) {
  std::uint32_t most[] = {0, 0, 0};
  for (std::size_t role = 0; role < found_.size(); ++role)
    for (const auto& c : found_[role]) most[role] = std::max(most[role], c.cached);
  // These two do the same for a prompt.
  most[of_both] = most[of_prefill] = std::max(most[of_both], most[of_prefill]);
  for (std::size_t role = 0; role < found_.size(); ++role)
    for (auto& c : found_[role])
      c.others = c.weight * (c.compute - c.w->prefill(k.prompt, most[role]));
}

double router_policy::transfer_seconds(const question& k, const candidate& p, const candidate& d,
                                       topology::distance far) const {
  const auto size = d.w->kv_bytes_per_token;
  const double bytes = (size > 0 ? size : default_kv_bytes_per_token) * (k.prompt - d.cached);
  return bytes /
         (p.w == nullptr ? speeds_.fastest() : speeds_.bytes_per_second(p.w->host, d.w->host, far));
}

void router_policy::consider(const question& k, option o) {
  o.last_pair = o.decode->id == k.last_decode && (!o.prefill || o.prefill->id == k.last_prefill);
  if (o.last_pair)
    o.score -= (o.prefill ? o.prefill : o.decode)->w->prefill(session_bonus_tokens, 0);
  options_.push_back(o);
  const auto at = options_.size() - 1;
  if (best_ == none || better(o, options_[best_])) {
    second_ = best_;
    best_ = at;
  } else if (second_ == none || better(o, options_[second_])) {
    second_ = at;
  }
}

/// Prefills in the order of what they cost by themselves. For each decode only the first ones of
/// each distance are looked at, since from there the way is as long for all, and none from where on
/// it could not be among the best, however near it is.
void router_policy::pair_up(const question& k) {
  const auto& prefills = found_[of_prefill];
  const auto& decodes = found_[of_decode];
  if (prefills.empty()) return;
  by_prefill_.resize(prefills.size());
  for (std::uint32_t i = 0; i < prefills.size(); ++i) by_prefill_[i] = i;
  std::sort(by_prefill_.begin(), by_prefill_.end(), [&](std::uint32_t a, std::uint32_t b) {
    const auto &x = prefills[a], &y = prefills[b];
    return x.rank != y.rank ? x.rank < y.rank : x.alone() < y.alone();
  });
  for (const auto& d : decodes) {
    const double base = d.queue + d.pressure + d.trend;
    const double least = transfer_seconds(k, {}, d, topology::distance::same_host);
    const bool last_decode = d.id == k.last_decode;
    std::array<unsigned, link_speeds::distances> seen{};
    for (auto i : by_prefill_) {
      const auto& p = prefills[i];
      const auto far = apart(d.w->host, p.w->host);
      auto& alike = seen[static_cast<std::size_t>(far)];
      if (alike >= pairs_of_distance && !(last_decode && p.id == k.last_prefill)) continue;
      const auto rank = p.rank + d.rank;
      if (second_ != none && !last_decode) {
        const auto &best = options_[best_], &second = options_[second_];
        const double bound = p.alone() + base + least;
        if (std::tie(rank, bound) > std::tie(second.rank, second.score) &&
            (rank > best.rank || bound > best.score + tie_of(best.score)))
          break;
      }
      ++alike;
      const double transfer = transfer_seconds(k, p, d, far);
      consider(k, {d.cached > 0 ? plan::from_position : plan::full, &p, &d, rank,
                   p.alone() + transfer + base, transfer, far});
    }
  }
}

/// Several shards that know the same would all take the same one: of those as good as equal two are
/// drawn, and the better one is taken.
std::size_t router_policy::pick(const route_query& q, std::size_t& next) const {
  next = second_;
  if (q.draw == 0) return best_;
  const auto& best = options_[best_];
  const double limit = best.score + tie_of(best.score);
  auto ties = [&](const option& o) {
    return o.rank == best.rank && o.far <= best.far && o.score <= limit;
  };
  const auto n = static_cast<std::uint64_t>(std::count_if(options_.begin(), options_.end(), ties));
  if (n < 2) return best_;
  std::uint64_t first = q.draw % n, other = (q.draw >> 32U) % n;
  std::size_t a = none, b = none;
  for (std::size_t i = 0; i < options_.size(); ++i) {
    if (!ties(options_[i])) continue;
    if (first-- == 0) a = i;
    if (other-- == 0) b = i;
  }
  const auto taken = better(options_[a], options_[b]) ? a : b;
  if (taken != best_) next = best_;
  return taken;
}

std::string router_policy::explain(const option& best, const option* next) const {
  const auto& does = best.prefill ? *best.prefill : *best.decode;
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(out,
                 "score {} ms ({}): queue {}, prefill {} with {} cached, others {}, lately {}, ",
                 ms(best.score), topology::to_string(best.far), ms(does.queue), ms(does.compute),
                 does.cached, ms(does.others), ms(does.trend));
  if (best.prefill)
    fmt::format_to(out, "transfer {}, decode's queue {}, ", ms(best.transfer),
                   ms(best.decode->queue));
  fmt::format_to(out, "decoding {}", ms(best.decode->pressure));
  if (is_slow(best.rank)) text += ", slow, but nobody else can";
  if (best.last_pair) text += ", the session's last pair";
  if (next) {
    fmt::format_to(out, "; next ");
    if (next->prefill) fmt::format_to(out, "{} and ", next->prefill->w->entry.name);
    fmt::format_to(out, "{} {} ms", next->decode->w->entry.name, ms(next->score));
  }
  return text;
}

chosen_worker router_policy::chosen(const worker& w) {
  return {w.entry.name, w.entry.generation, w.entry.host, w.entry.transfer_address};
}

std::variant<route_choice, route_refusal> router_policy::decide(const route_query& q) {
  hub_speaks(q.host, q.incarnation);
  if (auto known = incarnations_.find(q.host);
      known != incarnations_.end() && q.incarnation < known->second)
    return route_refusal{503, "hub_replaced", "The hub that asked has been replaced.", 0};
  if (leases_.size() >= limits_.leases_max)
    return route_refusal{503, router_overloaded,
                         "The router holds as many open requests as it may; try again later.",
                         1'000};
  const auto p = pools_.find(q.model);
  if (p == pools_.end() || !knows(models_, q.model)) return refusal(q);
  auto k = understand(q, p->second);
  if (!q.move_from.empty()) return decide_move(k);
  for (std::size_t role = 0; role < found_.size(); ++role) find(k, role, found_[role]);
  find_cached(k);
  k.popular = begins_popularly(q);
  for (std::size_t role = 0; role < found_.size(); ++role)
    weigh(k, found_[role], role == of_prefill);
  weigh_others(k);
  options_.clear();
  best_ = second_ = none;
  for (const auto& c : found_[of_both])
    consider(
        k, {plan::local, nullptr, &c, c.rank, c.alone() + c.pressure, 0, apart(k.host, c.w->host)});
  for (const auto& d : found_[of_decode])
    if (d.cached > 0 && k.prompt - d.cached <= limits_.decode_prefills_tokens_max)
      consider(k, {plan::decode_prefills, nullptr, &d, d.rank, d.alone() + d.pressure, 0,
                   topology::distance::same_host});
  pair_up(k);
  if (options_.empty()) return refusal(q);

  std::size_t next = none;
  const auto& best = options_[pick(q, next)];
  const auto& does = best.prefill ? *best.prefill : *best.decode;
  const auto workload = std::hash<std::string>{}(q.workload);
  // Not the chosen one's: it may be waited for by choice, for what it has cached.
  double wait = does.queue;
  for (auto role : {of_both, of_prefill})
    for (const auto& c : found_[role]) wait = std::min(wait, c.queue);
  for (std::size_t role = 0; role < found_.size(); ++role)
    if (!found_[role].empty()) k.of.ready[role].note_wait(workload, wait, q.now);
  guesses_.note(does.w->life, q.chain, does.blocks, q.now);

  route_choice c;
  c.how = best.how;
  if (best.prefill) c.prefill = chosen(*best.prefill->w);
  c.decode = chosen(*best.decode->w);
  c.score_seconds = best.score;
  c.reason = explain(best, next == none ? nullptr : &options_[next]);
  const auto kv = k.prompt + k.answer;
  const auto uncached = k.prompt - does.cached;
  const auto decode_share = share_of(*best.decode, best.prefill ? 0 : uncached, k.answer, kv, k);
  const auto prefill_share = best.prefill ? share_of(*best.prefill, uncached, 0, k.prompt, k)
                                          : share{};
  c.granted_seconds = prefill_share.seconds() + decode_share.seconds();
  c.lease = grant(k, prefill_share, decode_share, does.promised);
  // The key of a prompt under suspicion is not its session's.
  if (!q.session.empty() && !q.quarantine)
    sessions_.note(q.model, q.session, {c.prefill.name, c.decode.name}, q.shard_key);
  return c;
}

/// The least pressure and the shortest way for the KV. Only a worker of the same role, that takes
/// KV.
std::variant<route_choice, route_refusal> router_policy::decide_move(const question& k) {
  const auto& q = k.q;
  const auto id = id_of(q.move_from);
  const worker* from = id == nobody || !workers_[id].present ? nullptr : &workers_[id];
  auto& places = found_[of_decode];
  places.clear();
  if (from && !from->entry.transfer_address.empty() && from->of == &k.of)
    find(k, from->entry.role == msg::Role::BOTH ? of_both : of_decode, places);
  std::erase_if(places, [&](const candidate& c) {
    return c.w == from || c.w->entry.transfer_address.empty();
  });
  if (places.empty())
    return route_refusal{503, "no_place_to_move",
                         "No other engine can take a stream over from " + q.move_from + ".", 0};
  weigh(k, places, false);
  const candidate source{.id = id, .w = from};
  auto cost = [&](const candidate& c) {
    return c.queue + c.pressure + transfer_seconds(k, source, c, apart(from->host, c.w->host));
  };
  const auto& best = *std::min_element(
      places.begin(), places.end(), [&](const candidate& a, const candidate& b) {
        return std::tuple{a.rank, cost(a)} < std::tuple{b.rank, cost(b)};
      });
  route_choice c;
  c.how = plan::move;
  c.prefill = chosen(*from);
  c.decode = chosen(*best.w);
  c.score_seconds = cost(best);
  c.reason = fmt::format("{} leaves; score {} ms", from->entry.name, ms(c.score_seconds));
  const auto decode_share = share_of(best, 0, k.answer, k.prompt + k.answer, k);
  c.granted_seconds = decode_share.seconds();
  c.lease = grant(k, share_of(source, 0, 0, 0, k), decode_share, 0);
  if (!q.session.empty()) sessions_.note(q.model, q.session, {"", c.decode.name}, q.shard_key);
  return c;
}

}  // namespace troupe::router
