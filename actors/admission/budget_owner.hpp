#pragma once

#include "actors/admission/budget.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace troupe::admission {

/// The owner's side of one budget. Pure: one clock, which only has to be steady.
///
/// It rules while more than half of the gateways have heard from it lately and follow it, or half
/// of them with the first by name; no two owners can at a time (`lease_time`). Only a ruling owner
/// makes MU, at the rate less the floor of each gateway that is silent, since that one may be
/// spending it. A new owner begins with nothing.
class budget_owner {
 public:
  /// `incarnation` is larger than any earlier one of this gateway.
  budget_owner(budget_terms terms, std::vector<std::string> gateways, std::uint64_t incarnation,
               time_point now);

  /// Never fails: whoever isn't one of the gateways is answered with nothing.
  owner_word answer(const std::string& gateway, const holder_word& in, time_point now);

  bool rules(time_point now) const;
  double level(time_point now);
  /// MU at gateways, as far as known.
  double outstanding() const;
  /// Another rate, from now on; what is stored above the new burst is lost.
  void set_terms(budget_terms terms, time_point now);

 private:
  struct sent {
    std::uint64_t sequence;
    time_point at;
    double grant;
    std::uint32_t open_allowed;
  };
  struct holder {
    std::uint64_t incarnation = 0;
    std::uint64_t heard = 0;  ///< its newest sequence
    time_point last_word{};
    time_point voted{};  ///< when what it has heard was sent
    bool ever_voted = false;
    double held = 0;
    double need = 0;
    std::uint64_t asked = 0;  ///< place among those that wait; 0: does not wait
    std::uint32_t open = 0;
    std::uint32_t open_known = 0;  ///< what it may run, of words that it has heard
    std::vector<sent> unheard;
    double outstanding() const;
    std::uint32_t committed() const;
  };

  bool fresh(const holder& h, time_point now) const {
    return h.ever_voted && now < h.voted + vote_time;
  }
  time_point rules_until() const;
  std::size_t silent(time_point now) const;
  void accrue(time_point now);
  void hear(holder& h, const holder_word& in, time_point now);
  double ceiling() const;
  std::uint32_t places_at_first() const;
  double grant(holder& h, const holder_word& in, time_point now, owner_word& out);
  std::uint32_t allow(const std::string& gateway, const holder_word& in) const;

  budget_terms terms_;
  std::map<std::string, holder> holders_;  ///< all gateways
  std::uint64_t incarnation_;
  std::uint64_t sequence_;
  std::uint64_t next_ask_ = 1;
  double level_ = 0;
  time_point last_;
};

}  // namespace troupe::admission
