#include "gpu/text/gguf/schema_check.hpp"

#include "gpu/text/gguf/pattern.hpp"

#include <fmt/format.h>
#include <json.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <unordered_map>

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

error invalid(const std::string& place, const std::string& why) {
  constexpr std::size_t shown_bytes_max = 200;
  return {"invalid_schema",
          fmt::format("the schema at {} {}", place.substr(0, shown_bytes_max), why),
          "response_format.json_schema"};
}

/// Their values are objects whose keys are names and whose values are schemas.
constexpr std::array<std::string_view, 3> maps_of_schemas{"properties", "$defs", "definitions"};
/// Their values are data.
constexpr std::array<std::string_view, 5> data_keywords{"enum", "const", "default", "examples",
                                                        "required"};
constexpr std::array<std::string_view, 15> unheld{"not",
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
                                                  "maxProperties"};

template <class List>
bool among(const List& list, std::string_view key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

/// What a regular expression amounts to when it is written out. An estimate: escapes and classes
/// count as one character, open repetitions as their lower bound.
class pattern_measure {
 public:
  explicit pattern_measure(std::string_view pattern) : left_(pattern) { size_ = group(0, 1); }
  std::size_t size() const { return size_; }
  std::size_t group_repeats() const { return repeats_; }

 private:
  static constexpr std::size_t huge = 1'000'000;  // enough to be refused, no overflow

  std::size_t group(int depth, std::size_t outer) {
    std::size_t sum = 0;
    while (!left_.empty()) {
      const char c = left_.front();
      left_.remove_prefix(1);
      if (c == ')') break;
      const bool grouped = c == '(' && depth < schema_depth_max;
      const auto ahead = grouped ? count_behind_group() : 1;
      std::size_t one = 1;
      if (grouped)
        one = group(depth + 1, std::min(huge, outer * std::max<std::size_t>(1, ahead)));
      else if (c == '[')
        skip_class();
      else if (c == '\\' && !left_.empty())
        left_.remove_prefix(1);
      const auto times = repetition();
      if (times > 1 && (grouped || (outer > 1 && !fixed_)))
        repeats_ = std::max(repeats_, std::min(huge, outer * times));
      sum = std::min(huge, sum + one * std::max<std::size_t>(1, times));
    }
    return sum;
  }

  /// The repetition that follows the group which has just been opened.
  std::size_t count_behind_group() {
    const auto here = left_;
    for (int open = 1; !left_.empty() && open > 0;) {
      const char c = left_.front();
      left_.remove_prefix(1);
      if (c == '\\' && !left_.empty())
        left_.remove_prefix(1);
      else if (c == '[')
        skip_class();
      else
        open += c == '(' ? 1 : c == ')' ? -1 : 0;
    }
    const auto times = repetition();
    left_ = here;
    return times;
  }

  void skip_class() {
    if (left_.starts_with("^")) left_.remove_prefix(1);
    if (left_.starts_with("]")) left_.remove_prefix(1);
    while (!left_.empty() && left_.front() != ']')
      left_.remove_prefix(left_.front() == '\\' && left_.size() > 1 ? 2 : 1);
    if (!left_.empty()) left_.remove_prefix(1);
  }

  /// The largest number in `{m,n}` here; 1 without one.
  std::size_t repetition() {
    fixed_ = true;
    if (!left_.starts_with("{")) return 1;
    std::size_t most = 0, number = 0;
    while (!left_.empty() && left_.front() != '}') {
      left_.remove_prefix(1);
      if (left_.empty()) break;
      const char c = left_.front();
      if (c == ',') fixed_ = false;
      number = c >= '0' && c <= '9'
                   ? std::min(huge, number * 10 + static_cast<std::size_t>(c - '0'))
                   : 0;
      most = std::max(most, number);
    }
    if (!left_.empty()) left_.remove_prefix(1);
    return most;
  }

  std::string_view left_;
  std::size_t size_ = 0;
  std::size_t repeats_ = 1;
  bool fixed_ = true;  ///< the last repetition: so many, no more and no less
};

/// Where a schema stands: for people, and as the conversion names its rule.
struct spot {
  std::string place = "#";
  std::string rule = {};
  int depth = 0;

  spot below(const std::string& key) const {
    const auto part = rule_part(key);
    return {place + "/" + key, rule + (rule.empty() || part.empty() ? "" : "-") + part, depth + 1};
  }
  /// A map's own name is no part of its schemas' rules.
  spot into_map(const std::string& key) const { return {place + "/" + key, rule, depth}; }

 private:
  static std::string rule_part(const std::string& key) {
    // As the conversion calls them, and its branches have numbers only.
    if (key == "items") return "item";
    if (key == "anyOf" || key == "oneOf") return {};
    std::string out;
    for (const char c : key)
      if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        out += c;
      else if (out.empty() || out.back() != '-')
        out += '-';
    return out;
  }
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
    for (auto look : {&checker::check_bounds, &checker::check_reference, &checker::check_optional,
                      &checker::check_alternatives, &checker::check_pattern})
      if (auto done = (this->*look)(node, here.place); !done) return done;
    for (const auto& [key, value] : node.items()) {
      if (keywords_ == unheld_keywords::refuse && among(unheld, key))
        return invalid(here.place,
                       fmt::format("has `{}`, which no grammar can hold an answer to", key));
      if (among(data_keywords, key)) continue;
      auto done = among(maps_of_schemas, key) ? check_map(value, here.into_map(key))
                                              : check(value, here.below(key));
      if (!done) return done;
    }
    return ok;
  }

 private:
  expected<void> count(const spot& here) {
    if (here.depth > schema_depth_max)
      return invalid(here.place, fmt::format("is nested deeper than {} levels", schema_depth_max));
    if (++nodes_ > schema_nodes_max)
      return invalid("#", fmt::format("has more than {} parts", schema_nodes_max));
    return ok;
  }

  expected<void> count_rule(const common_json& node, const spot& here) {
    if (!node.is_object()) return ok;
    names_bytes_ += here.rule.size();
    auto& same = same_names_[here.rule];
    same_squares_ += 2 * same + 1;
    ++same;
    if (names_bytes_ > schema_rule_names_bytes_max)
      return invalid(here.place, "has too many long names within each other");
    if (same_squares_ > schema_same_names_squares_max)
      return invalid(here.place,
                     "has too many names that differ only in what is neither letter nor digit");
    return ok;
  }

  expected<void> check_map(common_json& node, const spot& here) {
    if (!node.is_object()) return ok;
    for (const auto& [name, value] : node.items()) {
      if (name.size() > schema_name_bytes_max)
        return invalid(here.place, fmt::format("has a name of {} bytes; {} are supported",
                                               name.size(), schema_name_bytes_max));
      if (auto done = check(value, here.below(name)); !done) return done;
    }
    return ok;
  }

  expected<void> check_alternatives(common_json& node, const std::string& place) {
    for (const char* key : {"enum", "anyOf", "oneOf"})
      if (node.contains(key) && node.at(key).is_array()) alternatives_ += node.at(key).size();
    if (alternatives_ > schema_alternatives_max)
      return invalid(place, fmt::format("has too many alternatives: {} are supported in all",
                                        schema_alternatives_max));
    return ok;
  }

  static const common_json* number(const common_json& node, const char* key) {
    return node.contains(key) && node.at(key).is_number() ? &node.at(key) : nullptr;
  }

  expected<void> check_bounds(common_json& node, const std::string& place) {
    for (const auto& [low, high, repeats] : all_bounds) {
      const auto* from = number(node, low);
      const auto* to = number(node, high);
      if (from != nullptr && to != nullptr && from->get<double>() > to->get<double>())
        return invalid(place, fmt::format("can't be satisfied: {} is above {}", low, high));
      for (const auto* count : {from, to}) {
        if (!repeats || count == nullptr) continue;
        const auto n = count->get<double>();
        if (n < 0 || n > schema_repetitions_max)
          return invalid(place,
                         fmt::format("has {} {}; 0 to {} are supported", count == from ? low : high,
                                     count->dump(), schema_repetitions_max));
      }
      // What is unrolled: up to the larger one.
      std::size_t most = 0;
      for (const auto* count : {from, to})
        if (repeats && count != nullptr)
          most = std::max(most, static_cast<std::size_t>(count->get<double>()));
      repetitions_ += most;
      if (repetitions_ > schema_repetitions_sum_max)
        return invalid(place, fmt::format("has too many repetitions (minLength, maxItems, ...): "
                                          "{} are supported in all",
                                          schema_repetitions_sum_max));
    }
    return ok;
  }

  expected<void> check_optional(common_json& node, const std::string& place) {
    if (!node.contains("properties") || !node.at("properties").is_object()) return ok;
    std::size_t optional = node.at("properties").size();
    if (node.contains("required") && node.at("required").is_array())
      optional -= std::min(optional, node.at("required").size());
    optional_squares_ += optional * optional;
    if (optional > optional_properties_max || optional_squares_ > optional_squares_max)
      return invalid(place,
                     fmt::format("has {} optional properties, which is too many ({} at most, "
                                 "fewer where many objects have some): list them in "
                                 "`required`",
                                 optional, optional_properties_max));
    return ok;
  }

  expected<void> check_pattern(common_json& node, const std::string& place) {
    if (!node.contains("pattern") || !node.at("pattern").is_string()) return ok;
    const pattern_measure measure(node.at("pattern").get<std::string>());
    pattern_parts_ += measure.size();
    if (pattern_parts_ > pattern_parts_max || measure.group_repeats() > pattern_group_repeats_max)
      return invalid(
          place, fmt::format("has a pattern that is too large: written out, patterns may have {} "
                             "characters in all, and a group may be repeated {} times",
                             pattern_parts_max, pattern_group_repeats_max));
    return keywords_ == unheld_keywords::allow ? ok : hold_pattern(node, place);
  }

  static expected<void> hold_pattern(common_json& node, const std::string& place) {
    for (const char* other : {"minLength", "maxLength"})
      if (node.contains(other))
        return invalid(place, fmt::format("has `pattern` and `{}`: a grammar can hold an answer "
                                          "to one of them; the pattern may count, as in `{{1,8}}`",
                                          other));
    auto written = pattern_of_json_text(node.at("pattern").get<std::string>());
    if (!written)
      return invalid(place, fmt::format("has a `pattern` with {}, which no grammar can hold an "
                                        "answer to",
                                        written.error().message));
    node["pattern"] = *std::move(written);
    return ok;
  }

  /// A reference that leads to nothing but references.
  expected<void> check_reference(common_json& node, const std::string& place) {
    const auto* here = &node;
    for (int hops = 0; here->contains("$ref"); ++hops) {
      if (hops > schema_depth_max) return invalid(place, "refers to itself");
      const auto& ref = here->at("$ref");
      if (!ref.is_string()) return ok;
      if (ref.get<std::string>().size() > schema_reference_bytes_max)
        return invalid(place, fmt::format("has a reference of more than {} bytes",
                                          schema_reference_bytes_max));
      here = find(ref.get<std::string>());
      if (here == nullptr || !here->is_object()) return ok;  // the conversion says what is wrong
    }
    return ok;
  }

  const common_json* find(std::string_view ref) const {
    if (!ref.starts_with('#')) return nullptr;
    ref.remove_prefix(1);
    const auto* here = &root_;
    while (ref.starts_with('/')) {
      ref.remove_prefix(1);
      const std::string key(ref.substr(0, ref.find('/')));
      ref.remove_prefix(key.size());
      if (!here->is_object() || !here->contains(key)) return nullptr;
      here = &here->at(key);
    }
    return here;
  }

  const common_json& root_;
  unheld_keywords keywords_;
  int nodes_ = 0;
  std::size_t optional_squares_ = 0;
  std::size_t pattern_parts_ = 0;
  std::size_t alternatives_ = 0;
  std::size_t repetitions_ = 0;
  std::size_t names_bytes_ = 0;
  std::size_t same_squares_ = 0;
  std::unordered_map<std::string, std::size_t> same_names_;  ///< how many, by rule
};

}  // namespace

expected<void> check_schema(common_json& schema, unheld_keywords unheld) {
  return checker(schema, unheld).check(schema, {});
}

}  // namespace troupe::gguf
