#pragma once

#include "actors/control/store.hpp"

#include <utility>

namespace troupe::control {

/// A record that outlives its control actor, but not the process: for simulations. Not thread-safe.
class memory_store final : public store {
 public:
  record last() const override { return last_; }
  void write(record next, std::function<void(expected<void>)> done) override {
    if (full) return done(error{"state_not_written", "the disk is full"});
    last_ = std::move(next);
    done(ok);
  }

  bool full = false;  ///< nothing can be written

 private:
  record last_;
};

}  // namespace troupe::control
