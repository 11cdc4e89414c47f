#include "gpu/text/gguf/schema_check.hpp"

#include "gpu/text/gguf/schema_held.hpp"
#include "gpu/text/gguf/schema_shape.hpp"
#include "gpu/text/gguf/schema_work.hpp"
#include "gpu/text/utf8.hpp"

#include <fmt/format.h>
#include <json.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace troupe::gguf {
namespace {

struct bounds {
  const char* low;
  const char* high;
  bool repeats;  ///< of a count
};
constexpr std::array<bounds, 5> all_bounds{{{"minLength", "maxLength", true},
                                            {"minItems", "maxItems", true},
                                            {"minProperties", "maxProperties", true},
                                            {"minimum", "maximum", false},
                                            {"exclusiveMinimum", "exclusiveMaximum", false}}};

constexpr std::size_t types_there_are = 7;

constexpr std::array<std::string_view, 20> unheld{"not",
                                                  "if",
                                                  "then",
                                                  "else",
                                                  "multipleOf",
                                                  "uniqueItems",
                                                  "contains",
                                                  "minContains",
                                                  "maxContains",
                                                  "patternProperties",
                                                  "propertyNames",
                                                  "dependentRequired",
                                                  "dependentSchemas",
                                                  "minProperties",
                                                  "maxProperties",
                                                  "unevaluatedItems",
                                                  "unevaluatedProperties",
                                                  "dependencies",
                                                  "$dynamicRef",
                                                  "$recursiveRef"};

/// A part of a rule's name, as the conversion makes it.
std::string rule_part(std::string_view text) {
  std::string out;
  for (const char c : text)
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
      out += c;
    else if (out.empty() || out.back() != '-')
      out += '-';
  return out;
}

/// Where a schema stands: for people, and as the conversion names its rule.
struct spot {
  std::string place = "#";
  std::string rule = {};
  int depth = 0;

  spot below(const std::string& key) const {
    // Items are called so, and branches have numbers only.
    const auto part = key == "items"                     ? "item"
                      : key == "anyOf" || key == "oneOf" ? std::string()
                                                         : rule_part(key);
    return {place + "/" + key, rule + (rule.empty() || part.empty() ? "" : "-") + part, depth + 1};
  }
  /// A map's own name is no part of its schemas' rules.
  spot into_map(const std::string& key) const { return {place + "/" + key, rule, depth}; }
};

class checker {
 public:
  checker(common_json& root, unheld_keywords keywords) : root_(root), keywords_(keywords) {}

  /// A schema, or a list of them.
  expected<void> check(common_json& node, const spot& here) {
    if (auto done = count(here); !done) return done;
    if (auto done = count_rule(node, here); !done) return done;
    if (node.is_array()) {
      for (std::size_t i = 0; i < node.size(); ++i)
        if (auto done = check(node.at(i), here.below(fmt::to_string(i))); !done) return done;
    }
    if (!node.is_object()) return ok;
    if (auto done = check_bounds(node, here.place); !done) return done;
    if (auto done = check_types(node, here.place); !done) return done;
    if (auto done = check_reference(node, here.place); !done) return done;
    for (const auto& [key, value] : node.items()) {
      if (keywords_ == unheld_keywords::refuse && among(unheld, key))
        return invalid_schema_at(
            here.place, fmt::format("has `{}`, which no grammar can hold an answer to", key));
      if (among(data_keywords, key)) continue;
      auto done = among(maps_of_schemas, key) ? check_map(value, here.into_map(key))
                                              : check(value, here.below(key));
      if (!done) return done;
    }
    return ok;
  }

  /// Once all is known to be bounded.
  expected<void> hold(common_json& node, const std::string& place) {
    if (node.is_array()) {
      for (std::size_t i = 0; i < node.size(); ++i)
        if (auto done = hold(node.at(i), fmt::format("{}/{}", place, i)); !done) return done;
    }
    if (!node.is_object()) return ok;
    if (auto done = gguf::hold(node, root_, place); !done) return done;
    if (auto done = hold_rule(node, place); !done) return done;
    for (const auto& [key, value] : node.items()) {
      if (among(data_keywords, key)) continue;
      const auto below = fmt::format("{}/{}", place, key);
      if (!among(maps_of_schemas, key)) {
        if (auto done = hold(value, below); !done) return done;
      } else if (value.is_object()) {
        for (const auto& [name, schema] : value.items())
          if (auto done = hold(schema, fmt::format("{}/{}", below, name)); !done) return done;
      }
    }
    return ok;
  }

 private:
  expected<void> count(const spot& here) {
    if (here.depth > schema_depth_max)
      return invalid_schema_at(here.place,
                               fmt::format("is nested deeper than {} levels", schema_depth_max));
    if (++nodes_ > schema_nodes_max)
      return invalid_schema_at("#", fmt::format("has more than {} parts", schema_nodes_max));
    return ok;
  }

  expected<void> count_rule(const common_json& node, const spot& here) {
    if (!node.is_object()) return ok;
    names_bytes_ += here.rule.size();
    auto& same = same_names_[here.rule];
    same_squares_ += 2 * same + 1;
    ++same;
    if (names_bytes_ > schema_rule_names_bytes_max)
      return invalid_schema_at(here.place, "has too many long names within each other");
    if (same_squares_ > schema_same_names_squares_max)
      return invalid_schema_at(
          here.place, "has too many names that differ only in what is neither letter nor digit");
    return ok;
  }

  expected<void> check_map(common_json& node, const spot& here) {
    if (!node.is_object()) return ok;
    for (const auto& [name, value] : node.items()) {
      if (name.size() > schema_name_bytes_max)
        return invalid_schema_at(here.place, fmt::format("has a name of {} bytes; {} are supported",
                                                         name.size(), schema_name_bytes_max));
      if (auto done = check(value, here.below(name)); !done) return done;
    }
    return ok;
  }

  /// The conversion makes an alternative of each, with a copy of all else.
  static expected<void> check_types(common_json& node, const std::string& place) {
    if (!node.contains("type") || !node.at("type").is_array()) return ok;
    std::vector<std::string> seen;
    for (const auto& type : node.at("type")) {
      if (!type.is_string()) return invalid_schema_at(place, "has a `type` that is no string");
      seen.push_back(type.get<std::string>());
      if (seen.size() > types_there_are)
        return invalid_schema_at(place, "lists more types than there are");
      if (std::find(seen.begin(), seen.end() - 1, seen.back()) != seen.end() - 1)
        return invalid_schema_at(place, fmt::format("lists the type {} more than once",
                                                    text::beginning(seen.back(), 20)));
    }
    if (!node.contains("allOf")) return ok;
    return invalid_schema_at(
        place, "has `allOf` beside a list of types: write one branch of `anyOf` for each "
               "type");
  }

  static const common_json* number(const common_json& node, const char* key) {
    return node.contains(key) && node.at(key).is_number() ? &node.at(key) : nullptr;
  }

  static expected<void> check_bounds(common_json& node, const std::string& place) {
    for (const auto& [low, high, repeats] : all_bounds) {
      const auto* from = number(node, low);
      const auto* to = number(node, high);
      if (from != nullptr && to != nullptr && from->get<double>() > to->get<double>())
        return invalid_schema_at(place,
                                 fmt::format("can't be satisfied: {} is above {}", low, high));
      for (const auto* count : {from, to}) {
        if (!repeats || count == nullptr) continue;
        const auto n = count->get<double>();
        if (n < 0 || n > schema_repetitions_max)
          return invalid_schema_at(place, fmt::format("has {} {}; 0 to {} are supported",
                                                      count == from ? low : high, count->dump(),
                                                      schema_repetitions_max));
      }
    }
    return ok;
  }

  /// One that leads to a schema, and not to nothing but references.
  expected<void> check_reference(common_json& node, const std::string& place) {
    if (!node.contains("$ref")) return ok;
    const auto& reference = node.at("$ref");
    if (!reference.is_string()) return invalid_schema_at(place, "has a `$ref` that is no string");
    const auto to = reference.get<std::string>();
    if (to.size() > schema_reference_bytes_max)
      return invalid_schema_at(
          place, fmt::format("has a reference of more than {} bytes", schema_reference_bytes_max));
    if (find_schema(root_, to) == nullptr)
      return invalid_schema_at(
          place, fmt::format("refers to {}, where there is no schema: references begin "
                             "with `#/` and lead to a schema of this document",
                             text::beginning(to, 100)));
    if (behind_references(root_, node) == nullptr)
      return invalid_schema_at(place, "refers to itself");
    return ok;
  }

  /// The conversion takes references for the same whose letters and digits are.
  expected<void> hold_rule(const common_json& node, const std::string& place) {
    if (!node.contains("$ref")) return ok;
    const auto to = node.at("$ref").get<std::string>();
    const auto [found, is_new] = references_.emplace(rule_part(to), to);
    if (is_new || found->second == to) return ok;
    return invalid_schema_at(
        place, fmt::format("refers to {}, and another one to {}: give one of them a name "
                           "that differs in letters or digits",
                           text::beginning(to, 100), text::beginning(found->second, 100)));
  }

  const common_json& root_;
  unheld_keywords keywords_;
  int nodes_ = 0;
  std::size_t names_bytes_ = 0;
  std::size_t same_squares_ = 0;
  std::unordered_map<std::string, std::size_t> same_names_;  ///< how many, by rule
  std::unordered_map<std::string, std::string> references_;  ///< by rule
};

}  // namespace

expected<void> check_schema(common_json& schema, unheld_keywords unheld) {
  checker check(schema, unheld);
  if (auto done = check.check(schema, {}); !done) return done;
  if (auto done = check_work(schema); !done) return done;
  return unheld == unheld_keywords::refuse ? check.hold(schema, "#") : ok;
}

}  // namespace troupe::gguf
