#pragma once

#include "config/problem.hpp"
#include "config/schema.hpp"

#include <toml++/toml.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::config {

/// Fills records from TOML tables by the schema, and notes what does not fit. One for each file.
class section_reader {
 public:
  section_reader(std::string file, std::vector<problem>& problems,
                 std::map<std::string, location>& origins)
      : file_(std::move(file)), problems_(problems), origins_(origins) {}

  /// Reads all keys of one table. `path` names it in `origins`; `header` in messages; `subtables`
  /// are keys that the caller reads.
  void read(const toml::table& table, const std::string& path, const std::string& header,
            const std::vector<bound_field>& fields, const std::vector<std::string>& subtables = {});

  location at(const toml::source_region& region) const;
  void fail(location where, std::string message);

  /// What a node is, for "found ..., expected ...".
  static std::string describe_found(const toml::node& node);

 private:
  void read_value(const toml::node& node, const std::string& key, const bound_field& field);

  std::string file_;
  std::vector<problem>& problems_;
  std::map<std::string, location>& origins_;
};

}  // namespace troupe::config
