#pragma once

#include "actors/admission/budget.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe::admission {

/// The gateways in the order in which they should own a budget: the same everywhere (rendezvous
/// hashing), another for each budget.
std::vector<std::string> owner_order(const std::string& budget, std::vector<std::string> gateways);

/// A gateway's side of one budget: what it holds, whom it follows, and what it may do alone. Pure:
/// one clock, which only has to be steady.
///
/// It follows the first in `order` that can be reached, and no other until `lease_time` after that
/// one's last word. Then what it held is gone, and it lives on its floor until it hears from an
/// owner that rules.
class budget_holder {
 public:
  budget_holder(budget_terms terms, std::vector<std::string> order, std::uint64_t incarnation,
                time_point now);

  // -- spending ------------------------------------------------------------------

  /// MU that can be spent now.
  double available(time_point now);
  /// Whether a request of so many MU may begin, as far as this budget goes.
  bool affords(double mu, time_point now);
  /// Only after `affords`, or to settle what was more than reserved.
  void spend(double mu, time_point now);
  /// What the owner does not count as held here goes back to it first: stored twice it would be
  /// more than the burst.
  void refund(double mu, time_point now);
  /// MU that are here or, as far as known, left at the owner; less than 0: a debt.
  double within_reach(time_point now);
  /// The time until so many MU on top of `queued` can be spent, as far as known.
  seconds wait_for(double mu, double queued, time_point now);
  /// Requests that may run at a time; none: no limit.
  std::optional<std::uint32_t> open_allowed() const;
  bool on_floor(time_point now);

  // -- the owner -----------------------------------------------------------------

  /// Who is followed. None: still bound to one that was given up.
  std::optional<std::string> owner(time_point now);
  /// A word is due: there is a need that nobody knows of, or it is time.
  bool word_due(double need, std::uint32_t want_open, time_point now);
  /// To `owner`. `need`: the whole of the request that waits first, and is not afforded. `keep`: MU
  /// of requests that wait for something else, and begin with what is held.
  holder_word word(double need, std::uint32_t open, std::uint32_t want_open, time_point now,
                   double keep = 0);
  void answered(const std::string& by, const owner_word& in, time_point now);
  /// What the directory says of a gateway's host.
  void reachable(const std::string& gateway, bool is, time_point now);
  void set_terms(budget_terms terms, time_point now);

 private:
  std::uint32_t places_at_first() const;
  struct asked {
    std::uint64_t sequence;
    time_point at;
  };
  void advance(time_point now);
  void choose(time_point now);
  bool usable(const std::string& gateway, time_point now) const;
  const std::string& best(time_point now) const;

  budget_terms terms_;
  std::vector<std::string> order_;
  std::uint64_t incarnation_;
  std::map<std::string, bool> reachable_;
  std::map<std::string, time_point> unfit_until_;

  std::string owner_;
  time_point followed_since_;
  time_point last_heard_;  ///< from `owner_`, whatever it said
  /// An owner said last that it rules. At the start, now: an incarnation before this one may have
  /// been heard just then, and the floor is not ours while an owner counts on us.
  time_point ruled_;
  bool leaving_ = false;
  std::uint64_t sequence_;
  std::uint64_t owner_incarnation_ = 0;
  std::uint64_t echo_ = 0;
  std::vector<asked> asked_;  ///< words without an answer
  time_point last_word_;
  bool word_open_ = false;
  double told_need_ = 0;
  std::uint32_t told_want_ = 0;
  time_point ask_again_;
  bool scarce_ = false;

  double held_ = 0;
  double counted_ = 0;  ///< of MU, as the owner counts them here at least
  double excess_ = 0;   ///< MU for the owner, with the next word
  time_point lease_until_;
  bool floor_ = false;
  double floor_level_ = 0;
  time_point last_;
  double use_per_second_ = 0;  ///< over some seconds
  std::uint32_t open_allowed_ = 0;
  double level_;  ///< of the owner, when it was told; before that, hoped for
  time_point level_at_;
};

}  // namespace troupe::admission
