#pragma once

#include "actors/console/books.hpp"
#include "actors/console/reload_result.hpp"
#include "actors/console/tree_walk.hpp"
#include "actors/control/control_actor.hpp"
#include "actors/control/shard_load.hpp"
#include "actors/health/watchdog_actor.hpp"
#include "actors/request/hub.hpp"
#include "messages/console.capnp.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::console {

/// What a host knows of the router shards.
struct host_shards {
  std::shared_ptr<const control::assignment> assigned;  ///< that its requests go by; may be null
  std::vector<control::shard_load> here;
  std::optional<control::control_report> control;
  std::vector<std::string> silent;
};

// What a report lists at most, so that it fits a message; counts are whole.
inline constexpr std::size_t requests_listed_max = 4'096;
inline constexpr std::size_t jobs_listed_max = 2'048;
inline constexpr std::size_t leases_listed_max = 2'048;
inline constexpr std::size_t engine_jobs_listed_max = 8'192;  ///< of all engines of a host
inline constexpr std::size_t problems_listed_max = 100;       ///< of a cluster file
inline constexpr std::size_t mismatches_listed_max = 64;      ///< of one engine

const char* to_string(supervision::child_report::condition c);

void write(msg::NodeReport::Builder out, const std::vector<tree_node>& roots);
void write(msg::NodeReport::Builder out, const health::verdicts_report& r);
void write(msg::NodeReport::Builder out, const request::requests_report& r);
void write(msg::Shards::Builder out, const host_shards& s);
void write(msg::Reloaded::Builder out, const reload_result& r);
void write(msg::Books::Builder out, const host_books& b);
/// `host`: whose books they are.
host_books read(msg::Books::Reader in, const std::string& host);
host_books::engine_part read(msg::Audit::Reader in);

}  // namespace troupe::console
