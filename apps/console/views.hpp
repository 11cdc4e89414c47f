#pragma once

#include "actors/console/books.hpp"
#include "apps/console/table.hpp"
#include "messages/console.capnp.h"

#include <rapidjson/prettywriter.h>
#include <rapidjson/stringbuffer.h>

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

std::string books_text(const std::vector<troupe::console::host_books>& all);
void books_json(json_writer& w, const std::vector<troupe::console::host_books>& all);

void table_json(json_writer& w, const table& t);

}  // namespace troupe::apps::console
