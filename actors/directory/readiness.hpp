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
  /// For clients: what each engine does, and which half is missing.
  std::string reasons() const;
  /// Which of them are slow, and by what evidence; empty: none.
  const std::string& slow() const { return slow_; }

 private:
  bool both_ = false;
  bool prefill_ = false;
  bool decode_ = false;
  std::string states_;
  std::string slow_;
};

}  // namespace troupe::directory
