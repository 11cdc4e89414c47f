#pragma once

#include "actors/admission/key_ring.hpp"

#include <memory>
#include <mutex>
#include <utility>

namespace troupe::admission {

/// The API keys that hold now. Replaced as a whole: a request goes by one generation of them, which
/// it keeps. Thread-safe.
class current_keys {
 public:
  /// Null: there are no tenants, and everybody may come in.
  std::shared_ptr<const key_ring> get() const {
    const std::lock_guard lock{mutex_};
    return keys_;
  }
  void set(std::shared_ptr<const key_ring> keys) {
    const std::lock_guard lock{mutex_};
    keys_ = std::move(keys);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const key_ring> keys_;
};

}  // namespace troupe::admission
