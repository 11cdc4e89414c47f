#pragma once

#include "actors/console/books.hpp"
#include "apps/console/table.hpp"
#include "messages/console.capnp.h"
#include "messages/directory.capnp.h"

#include <rapidjson/prettywriter.h>
#include <rapidjson/stringbuffer.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe::apps::console {

using json_writer = rapidjson::PrettyWriter<rapidjson::StringBuffer>;

inline void put(json_writer& w, const std::string& text) {
  w.String(text.data(), static_cast<rapidjson::SizeType>(text.size()));
}

/// A node's supervision tree, an actor a line.
std::string tree_text(msg::NodeReport::Reader report);
void tree_json(json_writer& w, msg::NodeReport::Reader report);

// Each appends its rows; all reports of a command go into one table.
void add_directory(table& t, msg::NodeReport::Reader report);
void add_health(table& t, msg::NodeReport::Reader report);
void add_requests(table& t, msg::NodeReport::Reader report);
void add_workers(table& t, msg::NodeReport::Reader report);

/// What the hosts of a cluster know of its router shards, put together.
class shards_view {
 public:
  /// A host's report of shards.
  void add(msg::NodeReport::Reader report);
  /// The directory of any host.
  void add_directory(msg::NodeReport::Reader report);

  /// A shard a line, in their order; then what decides on them, and what is amiss.
  std::string text() const;
  void json(json_writer& w) const;
  /// Hosts that go by different assignments, actors that are silent, and what the control host says
  /// is wrong. Empty: all is well.
  const std::vector<std::string>& problems() const { return problems_; }
  /// After all were added.
  void finish();

 private:
  struct shard {
    std::string host, state;
    std::uint64_t generation = 0;
    std::uint32_t slices = 0;
    double part = 0;
    bool told = false;  ///< what follows
    double requests_per_second = 0, load = 0;
    std::uint64_t requests = 0, misrouted = 0, blocks = 0, leases = 0;
  };
  struct decider {
    std::string host;
    std::uint64_t term = 0, generation = 0;
    std::int64_t made_ms = -1;
    double imbalance = 0, churn = 0;
    std::vector<std::string> lost;
  };
  using assignment_number = std::pair<std::uint64_t, std::uint64_t>;  ///< term, generation

  table rows() const;

  std::map<std::string, shard> shards_;
  std::map<std::string, assignment_number> go_by_;  ///< by host
  assignment_number shown_{};                       ///< whose slices are in `shards_`: the newest
  std::optional<decider> control_;
  std::vector<std::string> problems_;
};

std::string books_text(const std::vector<troupe::console::host_books>& all);
void books_json(json_writer& w, const std::vector<troupe::console::host_books>& all);

void table_json(json_writer& w, const table& t);

}  // namespace troupe::apps::console
