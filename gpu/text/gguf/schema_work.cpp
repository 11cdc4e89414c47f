#include "gpu/text/gguf/schema_work.hpp"

#include "gpu/text/gguf/schema_check.hpp"
#include "gpu/text/gguf/schema_shape.hpp"

#include <fmt/format.h>
#include <json.h>

#include <algorithm>
#include <string>
#include <unordered_set>

namespace troupe::gguf {
namespace {

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
    if (left_.starts_with('^')) left_.remove_prefix(1);
    if (left_.starts_with(']')) left_.remove_prefix(1);
    while (!left_.empty() && left_.front() != ']')
      left_.remove_prefix(left_.front() == '\\' && left_.size() > 1 ? 2 : 1);
    if (!left_.empty()) left_.remove_prefix(1);
  }

  /// The largest number in `{m,n}` here; 1 without one.
  std::size_t repetition() {
    fixed_ = true;
    if (!left_.starts_with('{')) return 1;
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

/// A schema on the conversion's way, and where it was found.
struct step {
  const common_json& schema;
  std::string place;
  int depth = 0;  ///< of the conversion's recursion

  step into(const common_json& next, std::string_view key) const {
    return {next, fmt::format("{}/{}", place, key), depth + 1};
  }
};

/// Walks a schema as the conversion does, which goes over it twice: it reads it into a tree, in
/// which each reference is followed once, and writes the rules of that tree's grammar. There the
/// properties of `allOf` are written anew wherever they are referred to, circles included.
class conversion {
 public:
  enum class pass { reading, writing };

  conversion(const common_json& root, pass which) : root_(root), pass_(which) {}

  expected<void> visit(const step& at) {
    if (auto done = count(at); !done) return done;
    const auto shape = shape_of(at.schema);
    if (shape != schema_shape::types) return visit_as(shape, at);
    const auto& types = at.schema.at("type");
    if (auto done = spend_alternatives(types.size(), at); !done) return done;
    for (const auto& type : types)
      if (type.is_string())
        if (auto done = visit_as(shape_of(at.schema, type.get<std::string>()), at); !done)
          return done;
    return ok;
  }

 private:
  expected<void> count(const step& at) {
    if (at.depth > schema_reach_max)
      return invalid_schema_at(
          at.place, fmt::format("is reached through more than {} schemas, each within the other or "
                                "referred to; `allOf` of itself never ends",
                                schema_reach_max));
    if (++visits_ <= schema_nodes_max) return ok;
    return invalid_schema_at("#",
                             fmt::format("has more than {} parts, those that `allOf` refers to "
                                         "more than once counted each time",
                                         schema_nodes_max));
  }

  expected<void> visit_as(schema_shape shape, const step& at) {
    switch (shape) {
    case schema_shape::reference:
      return follow(at);
    case schema_shape::any_of: {
      const auto* key = branches_keyword(at.schema);
      if (auto done = spend_alternatives(at.schema.at(key).size(), at); !done) return done;
      return visit_list(at.schema.at(key), at, key);
    }
    case schema_shape::enumeration:
      return spend_alternatives(at.schema.at("enum").size(), at);
    case schema_shape::object:
      return visit_object(at);
    case schema_shape::all_of:
      return pass_ == pass::reading ? visit_list(at.schema.at("allOf"), at, "allOf") : merge(at);
    case schema_shape::array:
      return visit_array(at);
    case schema_shape::string:
      if (auto done = spend_repetitions(at, "minLength", "maxLength"); !done) return done;
      return spend_pattern(at);
    default:
      return ok;
    }
  }

  expected<void> visit_list(const common_json& list, const step& at, std::string_view key) {
    if (!list.is_array()) return ok;
    for (std::size_t i = 0; i < list.size(); ++i)
      if (auto done = visit(at.into(list.at(i), fmt::format("{}/{}", key, i))); !done) return done;
    return ok;
  }

  expected<void> follow(const step& at) {
    const auto& reference = at.schema.at("$ref");
    if (!reference.is_string()) return ok;
    const auto text = reference.get<std::string>();
    const auto* next = find_schema(root_, text);
    if (next == nullptr || !followed_.insert(text).second) return ok;
    return visit({*next, text, at.depth + 1});
  }

  expected<void> visit_object(const step& at) {
    if (auto done = spend_optional(optional_of(at.schema), at); !done) return done;
    if (auto done = visit_properties(at); !done) return done;
    if (!at.schema.contains("additionalProperties")) return ok;
    return visit(at.into(at.schema.at("additionalProperties"), "additionalProperties"));
  }

  expected<void> visit_properties(const step& at) {
    if (!at.schema.contains("properties") || !at.schema.at("properties").is_object()) return ok;
    for (const auto& [name, value] : at.schema.at("properties").items())
      if (auto done = visit(at.into(value, "properties/" + name)); !done) return done;
    return ok;
  }

  expected<void> visit_array(const step& at) {
    if (auto done = spend_repetitions(at, "minItems", "maxItems"); !done) return done;
    const auto* key = at.schema.contains("items") ? "items" : "prefixItems";
    if (!at.schema.contains(key)) return ok;
    const auto& items = at.schema.at(key);
    return items.is_array() ? visit_list(items, at, key) : visit(at.into(items, key));
  }

  /// All properties of `allOf`: those of alternatives in it may be there or not.
  expected<void> merge(const step& at) {
    const auto& parts = at.schema.at("allOf");
    if (!parts.is_array()) return ok;
    std::size_t optional = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto part = at.into(parts.at(i), fmt::format("allOf/{}", i));
      const auto shape = shape_of(part.schema);
      if (shape == schema_shape::any_of) {
        const auto* key = branches_keyword(part.schema);
        const auto& branches = part.schema.at(key);
        for (std::size_t j = 0; branches.is_array() && j < branches.size(); ++j)
          if (auto done = merge_one(part.into(branches.at(j), fmt::format("{}/{}", key, j)),
                                    &optional);
              !done)
            return done;
      } else if (auto done = merge_one(part, shape == schema_shape::types ? &optional : nullptr);
                 !done) {
        return done;
      }
    }
    return spend_optional(optional, at);
  }

  expected<void> merge_one(const step& at, std::size_t* optional) {
    if (auto done = count(at); !done) return done;
    const auto* schema = behind_references(root_, at.schema);
    if (schema == nullptr || !schema->is_object() || !schema->contains("properties")) return ok;
    if (optional != nullptr) *optional += schema->at("properties").size();
    return visit_properties({*schema, at.place, at.depth});
  }

  static std::size_t optional_of(const common_json& schema) {
    if (!schema.contains("properties") || !schema.at("properties").is_object()) return 0;
    std::unordered_set<std::string> required;
    if (schema.contains("required") && schema.at("required").is_array())
      for (const auto& name : schema.at("required"))
        if (name.is_string()) required.insert(name.get<std::string>());
    std::size_t out = 0;
    for (const auto& [name, ignored] : schema.at("properties").items())
      if (!required.contains(name)) ++out;
    return out;
  }

  expected<void> spend_optional(std::size_t optional, const step& at) {
    optional_squares_ += optional * optional;
    if (optional > optional_properties_max || optional_squares_ > optional_squares_max)
      return invalid_schema_at(
          at.place, fmt::format("has {} optional properties, which is too many ({} at most, fewer "
                                "where many objects have some): list them in `required`",
                                optional, optional_properties_max));
    return ok;
  }

  expected<void> spend_alternatives(std::size_t more, const step& at) {
    alternatives_ += more;
    if (alternatives_ > schema_alternatives_max)
      return invalid_schema_at(at.place,
                               fmt::format("has too many alternatives: {} are supported in all",
                                           schema_alternatives_max));
    return ok;
  }

  /// What is unrolled: up to the larger one.
  expected<void> spend_repetitions(const step& at, const char* low, const char* high) {
    std::size_t most = 0;
    for (const char* key : {low, high})
      if (at.schema.contains(key) && at.schema.at(key).is_number())
        most = std::max(most, static_cast<std::size_t>(at.schema.at(key).get<double>()));
    repetitions_ += most;
    if (repetitions_ > schema_repetitions_sum_max)
      return invalid_schema_at(at.place,
                               fmt::format("has too many repetitions (minLength, maxItems, ...): "
                                           "{} are supported in all",
                                           schema_repetitions_sum_max));
    return ok;
  }

  expected<void> spend_pattern(const step& at) {
    if (!at.schema.contains("pattern") || !at.schema.at("pattern").is_string()) return ok;
    const auto text = at.schema.at("pattern").get<std::string>();
    const pattern_measure measure(text);
    pattern_parts_ += measure.size();
    if (pattern_parts_ > pattern_parts_max || measure.group_repeats() > pattern_group_repeats_max)
      return invalid_schema_at(
          at.place,
          fmt::format("has a pattern that is too large: written out, patterns may have {} "
                      "characters in all, and a group may be repeated {} times",
                      pattern_parts_max, pattern_group_repeats_max));
    return ok;
  }

  const common_json& root_;
  pass pass_;
  int visits_ = 0;
  std::size_t optional_squares_ = 0;
  std::size_t pattern_parts_ = 0;
  std::size_t alternatives_ = 0;
  std::size_t repetitions_ = 0;
  std::unordered_set<std::string> followed_;  ///< references
};

}  // namespace

expected<void> check_work(const common_json& root) {
  for (const auto pass : {conversion::pass::reading, conversion::pass::writing})
    if (auto done = conversion(root, pass).visit({root, "#"}); !done) return done;
  return ok;
}

}  // namespace troupe::gguf
