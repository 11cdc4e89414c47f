#include "actors/admission/budget_owner.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::admission {

namespace {

/// Answers that may be unheard; a holder that has heard none of so many is silent by then.
constexpr std::size_t unheard_max = 4'096;
/// The longest wait that is told.
constexpr seconds wait_max{3'600.0};

}  // namespace

double budget_owner::holder::outstanding() const {
  double sum = std::max(0.0, held);
  for (const auto& s : unheard) sum += s.grant;
  return sum;
}

std::uint32_t budget_owner::holder::committed() const {
  auto most = std::max(open, open_known);
  for (const auto& s : unheard) most = std::max(most, s.open_allowed);
  return most;
}

budget_owner::budget_owner(budget_terms terms, std::vector<std::string> gateways,
                           std::uint64_t incarnation, time_point now)
    : terms_(terms), incarnation_(incarnation), sequence_(first_sequence(incarnation)), last_(now) {
  // Where nobody else can have owned it, it begins full.
  if (gateways.size() <= 1) level_ = terms_.burst;
  for (auto& g : gateways) {
    auto& h = holders_[std::move(g)];
    // Of one that was never heard: what it may still run under an earlier owner.
    h.open_known = places_at_first();
  }
}

std::uint32_t budget_owner::places_at_first() const {
  return terms_.open_max / static_cast<std::uint32_t>(std::max<std::size_t>(1, terms_.gateways));
}

time_point budget_owner::rules_until() const {
  std::vector<time_point> votes;
  for (const auto& [name, h] : holders_)
    if (h.ever_voted) votes.push_back(h.voted + vote_time);
  std::sort(votes.rbegin(), votes.rend());
  const auto n = holders_.size();
  const auto enough = n / 2 + 1;
  auto until = votes.size() >= enough ? votes[enough - 1] : time_point::min();
  // Of two halves, the one with the first gateway.
  if (n % 2 == 0 && votes.size() >= n / 2) {
    const auto& first = holders_.begin()->second;
    if (first.ever_voted)
      until = std::max(until, std::min(votes[n / 2 - 1], first.voted + vote_time));
  }
  return until;
}

bool budget_owner::rules(time_point now) const { return now < rules_until(); }

std::size_t budget_owner::silent(time_point now) const {
  return static_cast<std::size_t>(std::count_if(
      holders_.begin(), holders_.end(), [&](const auto& h) { return !fresh(h.second, now); }));
}

double budget_owner::outstanding() const {
  double sum = 0;
  for (const auto& [name, h] : holders_) sum += h.outstanding();
  return sum;
}

double budget_owner::ceiling() const { return std::max(0.0, terms_.burst - outstanding()); }

void budget_owner::accrue(time_point now) {
  // What a silent gateway held is gone when its lease is over: that began before its last word
  // came.
  for (auto& [name, h] : holders_)
    if (h.outstanding() > 0 && now >= h.last_word + lease_time * 21 / 20) {
      h.held = 0;
      for (auto& s : h.unheard) s.grant = 0;
    }
  const auto until = std::min(now, rules_until());
  if (until > last_) {
    const double rate = std::max(0.0, terms_.per_minute - terms_.floor_per_minute *
                                                              static_cast<double>(silent(now)));
    level_ += rate / 60 * seconds(until - last_).count();
  }
  last_ = std::max(last_, now);
  level_ = std::min(level_, ceiling());
  // From here on another may have made MU of the same time.
  if (holders_.size() > 1 && now >= rules_until() + (lease_time - vote_time)) level_ = 0;
}

double budget_owner::level(time_point now) {
  accrue(now);
  return level_;
}

void budget_owner::set_terms(budget_terms terms, time_point now) {
  accrue(now);
  const bool first = terms_.open_max == 0;
  terms_ = terms;
  level_ = std::min(level_, ceiling());
  // As many as holders take until they are told.
  if (first)
    for (auto& [name, h] : holders_) h.open_known = std::max(h.open_known, places_at_first());
}

void budget_owner::hear(holder& h, const holder_word& in, time_point now) {
  if (in.incarnation > h.incarnation) {
    // What the earlier one held ended with it.
    h = holder{};
    h.incarnation = in.incarnation;
  }
  h.heard = in.sequence;
  h.last_word = now;
  h.open = in.open;
  h.open_known = in.open_allowed;
  h.held = in.held;
  for (const auto& s : h.unheard)
    if (s.sequence == in.echo) {
      h.voted = s.at;
      h.ever_voted = true;
    }
  std::erase_if(h.unheard, [&](const sent& s) { return s.sequence <= in.echo; });
  level_ = std::min(level_ + std::max(0.0, in.returned), ceiling());
}

double budget_owner::grant(holder& h, const holder_word& in, time_point now, owner_word& out) {
  h.need = std::max(0.0, in.need);
  if (h.need == 0)
    h.asked = 0;
  else if (h.asked == 0)
    h.asked = next_ask_++;
  double before = 0, all = 0;
  for (const auto& [name, other] : holders_) {
    if (other.asked == 0 || !fresh(other, now)) continue;
    all += other.need;
    if (other.asked <= h.asked) before += other.need;
  }
  out.scarce = all > h.need + 1e-9 || (h.need > 0 && level_ < h.need);
  double met = 0;
  if (h.need > 0) {
    // A request that costs more than can be stored is met from all that can, on credit.
    const double wanted = before <= h.need + 1e-9 ? std::min(h.need, terms_.burst) : before;
    if (level_ + 1e-9 >= wanted) {
      h.asked = 0;
      met = std::exchange(h.need, 0);
      level_ -= met;
      all -= met;
    } else {
      const double rate = terms_.per_minute / 60;
      const auto wait = rate > 0 ? seconds((wanted - level_) / rate) : wait_max;
      out.wait = std::chrono::ceil<milliseconds>(std::min(wait, wait_max));
      return 0;
    }
  }
  // Half of what nobody waits for, so that all gateways find some.
  const double spare = std::min(std::max(0.0, in.prefetch), std::max(0.0, (level_ - all) / 2));
  level_ -= spare;
  return met + spare;
}

std::uint32_t budget_owner::allow(const std::string& gateway, const holder_word& in) const {
  if (terms_.open_max == 0) return 0;
  std::uint32_t others = 0;
  for (const auto& [name, h] : holders_)
    if (name != gateway) others += h.committed();
  const auto free = terms_.open_max > others ? terms_.open_max - others : 0;
  return std::min(std::max(in.open, in.want_open), free);
}

owner_word budget_owner::answer(const std::string& gateway, const holder_word& in, time_point now) {
  owner_word out;
  out.incarnation = incarnation_;
  out.answers = in.sequence;
  const auto i = holders_.find(gateway);
  if (i == holders_.end()) return out;
  auto& h = i->second;
  if (in.incarnation < h.incarnation || (in.incarnation == h.incarnation && in.sequence <= h.heard))
    return out;  // older than what is known
  accrue(now);
  hear(h, in, now);
  out.sequence = sequence_++;
  out.rules = rules(now);
  if (out.rules && fresh(h, now)) {
    out.grant = grant(h, in, now, out);
    out.level = level_;
    for (const auto& [name, other] : holders_)
      if (name != gateway && other.asked != 0 && fresh(other, now)) out.level -= other.need;
    out.open_allowed = allow(gateway, in);
  } else {
    out.open_allowed = in.open_allowed;
  }
  if (h.unheard.size() >= unheard_max) h.unheard.erase(h.unheard.begin());
  h.unheard.push_back({out.sequence, now, out.grant, out.open_allowed});
  return out;
}

}  // namespace troupe::admission
