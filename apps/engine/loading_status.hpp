#pragma once

#include "actors/directory/directory_state.hpp"
#include "actors/link/post_office.hpp"

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace troupe::apps {

/// Tells an engine's launcher that loading goes on, each second and whenever the link is new, until
/// it fails or the worker speaks for itself.
class loading_status {
 public:
  static constexpr std::chrono::milliseconds interval{1'000};

  loading_status(caf::actor_system& system, std::shared_ptr<link::post_office> office,
                 directory::entry self, std::string launcher);
  ~loading_status();
  loading_status(const loading_status&) = delete;
  loading_status& operator=(const loading_status&) = delete;

  void set_progress(float done) { *progress_ = done; }
  /// Says it now. Any thread.
  void tell();
  /// Loading has failed: what, where and what to do. Said now, and whenever it is told to: the link
  /// may come up later than a model is found missing.
  void fail(const error& why);

 private:
  std::shared_ptr<std::atomic<float>> progress_ = std::make_shared<std::atomic<float>>(0.0F);
  caf::actor teller_;
};

}  // namespace troupe::apps
