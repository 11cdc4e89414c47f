#pragma once

#include "actors/control/assigner.hpp"
#include "actors/control/key_of_death.hpp"
#include "actors/control/shard_load.hpp"
#include "actors/control/store.hpp"
#include "actors/directory/directory_state.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace troupe::control {

struct control_limits {
  /// `churn_max` is of an interval: what is done before its end has what is left of it.
  assigner_limits assigner;
  /// Between two looks at the loads.
  std::chrono::milliseconds interval{60'000};
  /// From what was lost, or came, to the assignment that follows: several of a host, or of a cut
  /// wire, are seen together.
  std::chrono::milliseconds gather{1'000};
  /// From the beginning until a shard that nobody has seen counts as lost. Nothing is decided
  /// before all were seen: who has just begun knows of nobody. Nor, without a record, before those
  /// that are there have told by which assignment they go: a number is given once.
  std::chrono::milliseconds patience{30'000};
  /// Between two attempts at a record that could not be written.
  std::chrono::milliseconds write_again{10'000};
  /// Accounts that are older say nothing any more, as in Dicer.
  std::chrono::milliseconds account_age_max{300'000};
};

/// Steps of the search when a shard was lost or has come, which somebody waits for: with 64 shards
/// some 30 ms of the actor's time. The rest is left to the next look.
inline constexpr std::uint32_t urgent_steps_max = 256;

/// Of another control host that has the last word: when no higher number of it was heard for so
/// long, it is taken to be gone. Where it is not, one bid in that time is what it costs.
inline constexpr std::chrono::minutes rival_gone_after{10};

/// What a control host does with what it hears; the pure part of the actor `control`. Whoever uses
/// it asks `due` after each event and at `wake_at`, writes what that says, tells `written`, and
/// publishes `published` whenever its number has changed: so nothing is published that was not
/// persisted, and nothing at all before a term of its own was.
///
/// Times are of one clock.
class control_policy {
 public:
  using clock = std::chrono::steady_clock;
  using time_point = clock::time_point;

  /// `shards`: those of the cluster file, in its order; not empty. `before`: what earlier
  /// incarnations have left.
  control_policy(std::vector<std::string> shards, control_limits limits, record before,
                 time_point now);

  // -- events ----------------------------------------------------------------------
  /// `lost_host`: as in `directory::directory_changed`.
  void changed(const directory::change& what, const std::string& lost_host, time_point now);
  void heard(shard_load account, time_point now);

  /// What has to be written now, if anything. None until `written` was told of it.
  std::optional<record> due(time_point now);
  void written(const expected<void>& result, time_point now);

  // -- results ---------------------------------------------------------------------
  /// The newest that is persisted, by this incarnation; null before the first, and when another
  /// control host has the last word.
  const assignment* published() const { return current_ && !outranked_ ? &*current_ : nullptr; }
  /// When `due` may have something without any event.
  time_point wake_at() const;

  struct view {
    assignment_number number;        ///< of the last that was published; {0, 0}: none was
    std::optional<time_point> made;  ///< when
    double imbalance = 0;            ///< see `assigner_round`; 0: not known
    double churn = 0;                ///< the same
    std::vector<std::string> lost;   ///< shards that are counted out
    std::string problem;             ///< why nothing, or not all, is decided; empty: all is well
  };
  view look(time_point now);

 private:
  struct shard {
    bool present = false;  ///< in the directory
    bool seen = false;     ///< ready at any time, since this began
    bool told = false;     ///< by which assignment it goes, at any time since then
    std::uint64_t generation = 0;
    msg::EntryState state = msg::EntryState::UNKNOWN;
    std::optional<time_point> lost;  ///< with its host, which counted as a crash
    bool ready() const { return present && state == msg::EntryState::READY; }
    bool leaving() const { return state == msg::EntryState::DRAINING; }
  };
  struct account {
    shard_load said;
    time_point heard;
    time_point ended{};  ///< its incarnation, where that is over
  };
  /// What is known of how an assignment was made.
  struct making {
    std::optional<time_point> when;
    double imbalance = 0;
    double churn = 0;
  };

  void come(const directory::entry& e, time_point now);
  /// Whether it ended without having said that it would.
  bool gone(const std::string& name, time_point now);
  void end_account(const std::string& name, time_point now);
  void look_soon(time_point now);
  std::vector<bool> health() const;
  /// But for what `left_out` have told.
  load_map loads(time_point now, const std::set<std::string>& left_out) const;
  bool all_seen() const;
  /// Nothing is decided yet, unless patience is over: what was decided before is not known.
  bool listens() const;
  /// Why nothing is decided; empty: it may be.
  std::string held(time_point now);
  record with_term() const;
  std::optional<record> round(time_point now);

  std::vector<std::string> names_;
  control_limits limits_;
  std::map<std::string, shard> shards_;
  std::map<std::string, account> accounts_;  ///< of incarnations that live
  std::map<std::string, account> earlier_;   ///< of the ones before
  key_of_death crashes_;
  time_point began_;
  bool begins_anew_;                   ///< nothing was found on the disk
  std::uint64_t term_;                 ///< the largest that is persisted
  assignment last_;                    ///< what the next one is made from
  std::optional<assignment> current_;  ///< published
  std::optional<record> writing_;
  time_point writing_since_;
  bool wants_term_ = true;
  bool took_over_ = false;
  std::optional<time_point> outranked_;  ///< again, after that; when that was last heard
  assignment_number foreign_;            ///< the largest of others that shards go by
  std::string write_problem_;
  time_point next_round_;
  std::optional<time_point> soon_;          ///< a round before that
  double spent_ = 0;                        ///< of `churn_max`, since the last look at the loads
  time_point not_before_;                   ///< after a record that could not be written
  std::vector<bool> acted_on_, acting_on_;  ///< health of the shards in a round
  making made_, making_;
};

}  // namespace troupe::control
