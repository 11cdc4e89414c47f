#pragma once

#include "actors/directory/directory_state.hpp"

#include <string>

namespace troupe::directory {

/// Whether the engines of one model, added one by one, can serve it together, and if not, why. Not
/// thread-safe.
class readiness {
 public:
  void add(const entry& engine);
  /// There is an engine that does both, or one for each half.
  bool ready() const { return both_ || (prefill_ && decode_); }
  /// Nor will they be before somebody mends something: the engines for a half that were heard of
  /// have all been given up.
  bool failed() const;
  /// For clients: what each engine does, and which half is missing.
  std::string reasons() const;
  /// Which of them are slow, and by what evidence; empty: none.
  const std::string& slow() const { return slow_; }

 private:
  struct half {
    bool known = false;  ///< some engine can do it
    bool hope = false;   ///< one that was not given up
    void add(bool given_up) {
      known = true;
      hope = hope || !given_up;
    }
    bool lost() const { return known && !hope; }
  };

  bool both_ = false;
  bool prefill_ = false;
  bool decode_ = false;
  half prefills_, decodes_;
  std::string states_;
  std::string slow_;
};

readiness readiness_of(const std::string& model, const snapshot& all);

}  // namespace troupe::directory
