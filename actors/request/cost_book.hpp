#pragma once

#include "actors/capacity/cost_model.hpp"
#include "actors/directory/directory_state.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe::request {

/// What requests cost, by model and by worker: calibrated where the cluster file names a file, or
/// else by the speeds that engines measured when they were loaded. A value type; pure.
class cost_book {
 public:
  /// A pool of the cluster file, in its order.
  struct pool {
    std::string name;
    std::string model;
    std::optional<capacity::cost_model> calibrated = std::nullopt;
  };

  explicit cost_book(std::vector<pool> pools) : pools_(std::move(pools)) {}

  void update(const directory::change& c);

  /// A model's price, the same wherever a request runs: that of its first pool with a calibration,
  /// or else by the speeds of the first engines of each pool that knew theirs: also when one starts
  /// again and measures less on a busy host, and until the pool has no engine of that device class
  /// any more.
  const capacity::cost_model& of_model(const std::string& model);
  /// What a worker's own hardware takes; its model's where nothing is known of it.
  const capacity::cost_model& of_worker(const std::string& worker, const std::string& model);

 private:
  struct known_worker {
    directory::entry entry;
    std::optional<capacity::cost_model> costs;
    bool gone = false;
  };
  /// What a pool's price is by.
  struct known_speeds {
    std::string device_class;
    std::string source;  ///< the engine that was first
    double prefill = 0;  ///< tokens a second; 0: not known
    double decode = 0;
  };
  void keep_first(const directory::entry& e);
  bool has_class(const std::string& pool, const std::string& device_class) const;
  capacity::cost_model price_of(const std::string& model) const;
  const pool* find_pool(const std::string& name) const;

  std::vector<pool> pools_;
  std::map<std::string, known_worker> workers_;         ///< also such as are gone
  std::map<std::string, known_speeds> speeds_;          ///< by pool
  std::map<std::string, capacity::cost_model> models_;  ///< as long as nothing changes
};

}  // namespace troupe::request
