#include "actors/control/control_policy.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe::control {

namespace {

/// Accounts that have faded to less than this are forgotten.
constexpr double faded = 0.01;

/// The part of an ended incarnation's load that the averages of who has its keys now do not show
/// yet: what they gain in a window, it loses.
double still_weighs(std::chrono::duration<double> since) {
  return std::exp(-since / std::chrono::duration<double>{load_window});
}

assignment renumbered(const assignment& a, assignment_number number) {
  return assignment::make(number, a.shards(), a.slices()).value();
}

}  // namespace

control_policy::control_policy(std::vector<std::string> shards, control_limits limits,
                               record before, time_point now)
    : names_(std::move(shards)), limits_(limits), began_(now), begins_anew_(before.term == 0),
      term_(before.term),
      last_(before.last ? *std::move(before.last) : assignment::uniform(names_)),
      next_round_(now + limits.interval), soon_(now + limits.gather), not_before_(now) {
  for (const auto& n : names_) shards_[n];
  term_ = std::max(term_, last_.number().term);
}

// -- events ----------------------------------------------------------------------------

void control_policy::changed(const directory::change& what, const std::string& lost_host,
                             time_point now) {
  std::vector<std::string> lost;
  for (const auto& e : what.removed) {
    if (!gone(e.name, now)) continue;
    // A host is one event, however many shards were there.
    if (lost_host.empty()) {
      crashes_.crashed(now, names_.size(), {e.name});
    } else {
      shards_.at(e.name).lost = now;
      lost.push_back(e.name);
    }
  }
  if (!lost.empty()) crashes_.crashed(now, names_.size(), std::move(lost));
  for (const auto& e : what.added_or_changed)
    if (e.role == msg::Role::ROUTER) come(e, now);
  look_soon(now);
}

void control_policy::come(const directory::entry& e, time_point now) {
  const auto i = shards_.find(e.name);
  if (i == shards_.end()) return;
  auto& s = i->second;
  if (s.present && s.generation != e.generation) {
    // Another incarnation, and not a word of the end of the one before.
    if (!s.leaving()) crashes_.crashed(now, names_.size(), {e.name});
    end_account(e.name, now);
  }
  // Only the way there was lost.
  if (const auto lost = std::exchange(s.lost, std::nullopt); lost && s.generation == e.generation)
    crashes_.withdraw(*lost);
  s.present = true;
  s.generation = e.generation;
  s.state = e.state;
  s.seen = s.seen || s.ready();
}

bool control_policy::gone(const std::string& name, time_point now) {
  const auto i = shards_.find(name);
  if (i == shards_.end() || !i->second.present) return false;
  i->second.present = false;
  end_account(name, now);
  return !i->second.leaving();
}

void control_policy::end_account(const std::string& name, time_point now) {
  const auto i = accounts_.find(name);
  if (i == accounts_.end()) return;
  i->second.ended = now;
  earlier_[name] = std::move(i->second);
  accounts_.erase(i);
}

void control_policy::look_soon(time_point now) {
  if (health() == acted_on_)
    soon_.reset();
  else if (!soon_)
    soon_ = now + limits_.gather;
}

void control_policy::heard(shard_load said, time_point now) {
  const auto s = shards_.find(said.shard);
  // An incarnation that is over, or one that the directory is yet to show: its next is soon.
  if (s == shards_.end() || !s->second.present || said.generation != s->second.generation) return;
  s->second.told = true;
  // It was only out of sight.
  if (const auto i = earlier_.find(said.shard);
      i != earlier_.end() && said.generation == i->second.said.generation)
    earlier_.erase(i);
  const auto by = said.goes_by;
  if (by.term < term_max && (current_ ? by > current_->number() : by.term > term_)) {
    // Ours would be refused. Either our record is older than what was published by it, and a higher
    // term mends that; or there is another control host, which will have the last word.
    const bool higher = by > foreign_;
    foreign_ = std::max(foreign_, by);
    if (outranked_ ? higher : took_over_ && !wants_term_) outranked_ = now;
    if (!wants_term_) wants_term_ = took_over_ = true;
  }
  auto& a = accounts_[said.shard];
  a.said = std::move(said);
  a.heard = now;
}

// -- decisions -------------------------------------------------------------------------

std::optional<record> control_policy::due(time_point now) {
  if (writing_ || now < not_before_) return std::nullopt;
  if (outranked_ && now < *outranked_ + rival_gone_after) return std::nullopt;
  writing_ = wants_term_ ? with_term() : round(now);
  writing_since_ = now;
  return writing_;
}

record control_policy::with_term() const {
  const auto term = std::max(term_, foreign_.term) + 1;
  return {term, renumbered(current_ ? *current_ : last_, {term, 1})};
}

std::optional<record> control_policy::round(time_point now) {
  const bool regular = now >= next_round_;
  if (!regular && !(soon_ && now >= *soon_)) return std::nullopt;
  if (listens() && now < began_ + limits_.patience) return std::nullopt;
  soon_.reset();
  auto limits = limits_.assigner;
  if (regular) {
    next_round_ = now + limits_.interval;
    spent_ = 0;
  } else {
    limits.churn_max = std::max(0.0, limits.churn_max - spent_);
    limits.merge_churn_max = std::min(limits.merge_churn_max, limits.churn_max);
    limits.steps_max = std::min(limits.steps_max, urgent_steps_max);
  }
  if (!held(now).empty()) return std::nullopt;
  std::vector<shard_state> states;
  const auto healthy = health();
  const auto suspects = crashes_.suspects(now);
  for (std::size_t i = 0; i < names_.size(); ++i)
    states.push_back({names_[i], healthy[i] && !suspects.contains(names_[i])});
  if (std::none_of(states.begin(), states.end(), [](const auto& s) { return s.healthy; }))
    return std::nullopt;
  auto r = assign(*current_, states, loads(now, suspects), limits,
                  {term_, current_->number().generation + 1});
  if (!suspects.empty()) {
    // It may be their keys that kill: those are given to nobody. Others are balanced.
    r.next = hold(*current_, r.next, suspects);
    r.imbalance = imbalance(r.next, loads(now, {}));
    r.churn = churn_between(*current_, r.next);
  }
  if (r.next.shards() == current_->shards() && r.next.slices() == current_->slices()) {
    acted_on_ = healthy;
    made_.imbalance = r.imbalance;
    return std::nullopt;
  }
  acting_on_ = healthy;
  making_ = {now, r.imbalance, r.churn};
  return record{term_, std::move(r.next)};
}

void control_policy::written(const expected<void>& result, time_point now) {
  if (!writing_) return;
  auto done = *std::exchange(writing_, std::nullopt);
  if (!result) {
    write_problem_ = result.error().message;
    not_before_ = now + limits_.write_again;
    if (!wants_term_) soon_ = not_before_;
    return;
  }
  write_problem_.clear();
  if (wants_term_) {
    made_.when = now;
    // Unless it was outbid meanwhile.
    if (!outranked_ || done.last->number() > foreign_) {
      wants_term_ = false;
      outranked_.reset();
    }
  } else {
    made_ = making_;
    spent_ += making_.churn;
    acted_on_ = acting_on_;
  }
  term_ = done.term;
  current_ = std::move(done.last);
  look_soon(now);
}

std::vector<bool> control_policy::health() const {
  std::vector<bool> out;
  for (const auto& n : names_) out.push_back(shards_.at(n).ready());
  return out;
}

bool control_policy::listens() const {
  return !all_seen() || (begins_anew_ && std::any_of(shards_.begin(), shards_.end(), [](auto& s) {
                           return s.second.present && !s.second.told;
                         }));
}

bool control_policy::all_seen() const {
  return std::all_of(shards_.begin(), shards_.end(), [](const auto& s) { return s.second.seen; });
}

load_map control_policy::loads(time_point now, const std::set<std::string>& left_out) const {
  std::vector<range_load> ranges;
  std::vector<key_load> keys;
  const auto add = [&](const shard_load& said, double weight) {
    for (auto r : said.ranges) ranges.push_back({r.first, r.last, r.load * weight});
    for (auto k : said.keys) keys.push_back({k.key, k.load * weight});
  };
  for (const auto& [name, a] : accounts_)
    if (now - a.heard <= limits_.account_age_max && !left_out.contains(name)) add(a.said, 1);
  for (const auto& [name, a] : earlier_) {
    if (now - a.heard > limits_.account_age_max || left_out.contains(name)) continue;
    // As of the moment at which its successor told, or those that have its keys now.
    const auto successor = accounts_.find(name);
    const auto then = successor != accounts_.end() ? successor->second.heard
                      : shards_.at(name).present   ? a.ended
                                                   : now;
    if (const auto weight = still_weighs(then - a.ended); weight >= faded) add(a.said, weight);
  }
  return {ranges, keys};
}

std::string control_policy::held(time_point now) {
  if (outranked_)
    return fmt::format("shards go by term {} although this control host has taken a higher one "
                       "before: there is another control host; stop one of them (when it is not "
                       "heard of for {} min, this one goes on)",
                       foreign_.term, rival_gone_after.count());
  const auto present = static_cast<std::size_t>(std::count_if(
      shards_.begin(), shards_.end(), [](const auto& s) { return s.second.present; }));
  // Who has just begun knows of nobody. Later it is more likely that this host is cut off.
  if (present * 2 < names_.size() && (all_seen() || now >= began_ + limits_.patience))
    return fmt::format("sees {} of {} shards, less than half: nothing is moved", present,
                       names_.size());
  return {};
}

control_policy::time_point control_policy::wake_at() const {
  if (writing_) return time_point::max();
  if (outranked_) return std::max(*outranked_ + rival_gone_after, not_before_);
  if (wants_term_) return not_before_;
  auto at = soon_ ? std::min(*soon_, next_round_) : next_round_;
  if (listens()) at = std::max(at, began_ + limits_.patience);
  return std::max(at, not_before_);
}

control_policy::view control_policy::look(time_point now) {
  view v;
  if (current_) v.number = current_->number();
  v.made = made_.when;
  v.imbalance = made_.imbalance;
  v.churn = made_.churn;
  for (std::size_t i = 0; i < acted_on_.size(); ++i)
    if (!acted_on_[i]) v.lost.push_back(names_[i]);
  if (!write_problem_.empty())
    v.problem = write_problem_;
  else if (writing_ && now - writing_since_ > limits_.write_again)
    v.problem = "the disk does not take the state: nothing is decided until it has";
  else
    v.problem = held(now);
  if (const auto suspects = crashes_.suspects(now); v.problem.empty() && !suspects.empty())
    v.problem = fmt::format("shards end one after the other, maybe of the keys that they are "
                            "given: what {} had is moved to nobody until they have not for {} min",
                            fmt::join(suspects, ", "), key_of_death::retention.count());
  return v;
}

}  // namespace troupe::control
