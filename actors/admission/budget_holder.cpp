#include "actors/admission/budget_holder.hpp"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe::admission {

namespace {

/// Of the average of use: what was so long ago counts for 1/e.
constexpr double use_memory_s = 3;
/// Before an owner that does not rule yet is asked for the same once more.
constexpr milliseconds ask_pause{50};
/// Words whose answer may still come.
constexpr std::size_t asked_max = 4'096;

}  // namespace

std::vector<std::string> owner_order(const std::string& budget, std::vector<std::string> gateways) {
  std::sort(gateways.begin(), gateways.end());
  auto score = [&](const std::string& g) {
    return XXH3_64bits_withSeed(g.data(), g.size(), XXH3_64bits(budget.data(), budget.size()));
  };
  std::stable_sort(gateways.begin(), gateways.end(),
                   [&](const auto& a, const auto& b) { return score(a) > score(b); });
  return gateways;
}

budget_holder::budget_holder(budget_terms terms, std::vector<std::string> order,
                             std::uint64_t incarnation, time_point now)
    : terms_(terms), order_(std::move(order)), incarnation_(incarnation), owner_(order_.front()),
      followed_since_(now), last_heard_(now), ruled_(now), sequence_(first_sequence(incarnation)),
      last_word_(now - renewal_interval), ask_again_(now), lease_until_(now), last_(now),
      level_(terms.burst), level_at_(now) {
  // Until an owner is heard: what an earlier incarnation may have had is still running.
  open_allowed_ = places_at_first();
}

std::uint32_t budget_holder::places_at_first() const {
  return terms_.open_max / static_cast<std::uint32_t>(std::max<std::size_t>(1, terms_.gateways));
}

bool budget_holder::usable(const std::string& g, time_point now) const {
  if (auto i = reachable_.find(g); i != reachable_.end() && !i->second) return false;
  const auto i = unfit_until_.find(g);
  return i == unfit_until_.end() || now >= i->second;
}

const std::string& budget_holder::best(time_point now) const {
  for (const auto& g : order_)
    if (usable(g, now)) return g;
  return order_.front();
}

void budget_holder::advance(time_point now) {
  if (!floor_ && now >= lease_until_) {
    held_ = std::min(held_, 0.0);
    counted_ = excess_ = 0;
  }
  if (!floor_ && now >= ruled_ + lease_time) {
    floor_ = true;
    floor_level_ = held_;
    held_ = 0;
    last_ = ruled_ + lease_time;
  }
  if (floor_ && now > last_) {
    const double rate = terms_.floor_per_minute / 60;
    floor_level_ = std::min(floor_level_ + rate * seconds(now - last_).count(),
                            rate * floor_stored.count());
    last_ = now;
  }
  choose(now);
}

/// One that rules is kept; else the best that can be reached, but not before the last word of the
/// one before has lost its meaning.
void budget_holder::choose(time_point now) {
  const auto tried = std::max(ruled_, followed_since_);
  if (now < tried + lease_time) return;
  const auto bound_until = std::max(last_heard_, followed_since_) + lease_time;
  // Silent, or it answers and does not rule: others follow another one, and keep it. Who has come
  // back and is the first in order would follow itself for ever. That is remembered until all have
  // been tried.
  if (!leaving_) {
    const bool silent = now >= bound_until;
    unfit_until_[owner_] = now + (silent ? silence_remembered
                                         : 2 * lease_time * static_cast<int>(order_.size()));
  }
  const auto& next = best(now);
  leaving_ = next != owner_;
  if (!leaving_ || now < bound_until) return;
  owner_ = next;
  leaving_ = false;
  followed_since_ = now;
  owner_incarnation_ = echo_ = 0;
  asked_.clear();
  word_open_ = false;
  last_word_ = now - renewal_interval;
}

double budget_holder::available(time_point now) {
  advance(now);
  return floor_ ? floor_level_ : held_;
}

bool budget_holder::affords(double mu, time_point now) {
  const auto has = available(now);
  if (!floor_) return has + 1e-9 >= mu;
  return has > 0 && has + 1e-9 >= std::min(mu, terms_.floor_per_minute / 60 * floor_stored.count());
}

void budget_holder::spend(double mu, time_point now) {
  advance(now);
  (floor_ ? floor_level_ : held_) -= mu;
  use_per_second_ += mu / use_memory_s;
}

void budget_holder::refund(double mu, time_point now) {
  advance(now);
  // On the floor it would be more than the floor: it is not known under which owner it was spent.
  if (!floor_) {
    const double kept = std::clamp(counted_ - held_, 0.0, mu);
    held_ += kept;
    excess_ += mu - kept;
  }
  use_per_second_ = std::max(0.0, use_per_second_ - mu / use_memory_s);
}

double budget_holder::within_reach(time_point now) {
  const double has = available(now);
  if (floor_) return has;
  const double flown = terms_.per_minute / 60 * seconds(now - level_at_).count();
  return has + std::min(level_ + excess_ + std::max(0.0, flown), terms_.burst - std::max(0.0, has));
}

seconds budget_holder::wait_for(double mu, double queued, time_point now) {
  // What costs more than can be saved up is met on credit.
  const double missing = std::min(mu, terms_.burst) + queued - within_reach(now);
  if (missing <= 0) return seconds{0};
  const double rate = (floor_ ? terms_.floor_per_minute : terms_.per_minute) / 60;
  return rate > 0 ? seconds{missing / rate} : seconds{3'600};
}

std::optional<std::uint32_t> budget_holder::open_allowed() const {
  if (terms_.open_max == 0) return std::nullopt;
  return open_allowed_;
}

bool budget_holder::on_floor(time_point now) {
  advance(now);
  return floor_;
}

std::optional<std::string> budget_holder::owner(time_point now) {
  advance(now);
  if (leaving_) return std::nullopt;
  return owner_;
}

bool budget_holder::word_due(double need, std::uint32_t want_open, time_point now) {
  advance(now);
  if (leaving_) return false;
  if (now >= last_word_ + renewal_interval) return true;
  if (word_open_) return false;
  if (need > 0) return told_need_ == 0 || now >= ask_again_ || excess_ > 0;
  return told_need_ > 0 ||
         (terms_.open_max != 0 && want_open > open_allowed_ && want_open > told_want_);
}

holder_word budget_holder::word(double need, std::uint32_t open, std::uint32_t want_open,
                                time_point now, double keep) {
  advance(now);
  use_per_second_ *= std::exp(-seconds(now - last_word_).count() / use_memory_s);
  const double target = scarce_ ? 0 : use_per_second_ * prefetch_time.count();
  holder_word out;
  out.incarnation = incarnation_;
  out.sequence = ++sequence_;
  out.echo = echo_;
  out.need = std::max(0.0, need);
  if (!floor_) {
    // A request is met in one piece: gateways that each sat on a part would wait for each other.
    const double kept = need > 0 ? 0 : std::max(target, keep);
    out.returned = std::exchange(excess_, 0);
    if (held_ > kept) {
      out.returned += held_ - kept;
      held_ = kept;
    }
    level_ += out.returned;
    out.held = held_;
    counted_ = std::max(0.0, held_);
    if (need > 0) out.need -= held_;  // a debt comes first
    // On top of a need, too: under steady load there is always one, and each would ask again.
    out.prefetch = std::max(0.0, target - std::max(0.0, held_));
  }
  out.open = open;
  out.want_open = want_open;
  out.open_allowed = open_allowed_;
  asked_.push_back({out.sequence, now});
  if (asked_.size() > asked_max) asked_.erase(asked_.begin());
  last_word_ = now;
  word_open_ = true;
  told_need_ = out.need;
  told_want_ = want_open;
  return out;
}

void budget_holder::answered(const std::string& by, const owner_word& in, time_point now) {
  advance(now);
  if (by != owner_ || leaving_ || in.incarnation < owner_incarnation_) return;
  // The one before it has ended, and what was said to it with it.
  if (in.incarnation > owner_incarnation_) echo_ = 0;
  if (in.sequence <= echo_) return;
  const auto i = std::find_if(asked_.begin(), asked_.end(),
                              [&](const auto& a) { return a.sequence == in.answers; });
  if (i == asked_.end()) return;
  const auto sent = i->at;
  const bool newest = std::next(i) == asked_.end();
  asked_.erase(asked_.begin(), std::next(i));
  const bool first = echo_ == 0;
  owner_incarnation_ = in.incarnation;
  echo_ = in.sequence;
  last_heard_ = now;
  if (newest) word_open_ = false;
  // A new owner rules once its word is known to be heard: that is told at once.
  if (first) last_word_ = now - renewal_interval;
  if (!in.rules || now >= sent + lease_time) {
    // It has nothing to give yet: without a pause the two would talk without end.
    ask_again_ = std::max(ask_again_, now + ask_pause);
    return;
  }
  ruled_ = now;
  if (floor_) {
    floor_ = false;
    held_ = std::min(0.0, floor_level_);
    floor_level_ = 0;
  }
  lease_until_ = std::max(lease_until_, sent + lease_time);
  held_ += in.grant;
  counted_ += in.grant;
  scarce_ = in.scarce;
  level_ = in.level;
  level_at_ = now;
  open_allowed_ = in.open_allowed;
  if (in.grant > 0) told_need_ = 0;
  ask_again_ = now + std::max(milliseconds{1}, in.wait);
}

void budget_holder::reachable(const std::string& gateway, bool is, time_point now) {
  advance(now);
  reachable_[gateway] = is;
  if (is) unfit_until_.erase(gateway);
}

void budget_holder::set_terms(budget_terms terms, time_point now) {
  advance(now);
  const bool first = terms_.open_max == 0;
  terms_ = terms;
  // Until an owner is heard of a limit that there was not.
  if (first) open_allowed_ = places_at_first();
}

}  // namespace troupe::admission
