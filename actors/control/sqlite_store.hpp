#pragma once

#include "actors/control/store.hpp"
#include "messages/base/expected.hpp"

#include <memory>
#include <string>

namespace troupe::control {

/// The record in an SQLite file of its own, which one process at a time may have. A thread of the
/// store's writes: the disk may take its time. Ends after what it was given to write. Thread-safe.
class sqlite_store final : public store {
 public:
  /// Opens the file, or makes it, reads it, and tries whether it can be written. Blocks: for
  /// starts. Errors name the file, what is wrong with it, and what to do: `state_unusable`;
  /// `state_unavailable` where another start may help, since another process has it or the disk is
  /// full.
  static expected<std::shared_ptr<sqlite_store>> open(const std::string& path,
                                                      const std::string& cluster_id);
  ~sqlite_store() override;
  sqlite_store(const sqlite_store&) = delete;
  sqlite_store& operator=(const sqlite_store&) = delete;

  record last() const override;
  void write(record next, std::function<void(expected<void>)> done) override;

 private:
  class impl;
  explicit sqlite_store(std::unique_ptr<impl> i);
  std::unique_ptr<impl> impl_;
};

}  // namespace troupe::control
