#include "gpu/text/gguf/schema_held.hpp"

#include "gpu/text/gguf/pattern.hpp"
#include "gpu/text/gguf/schema_check.hpp"
#include "gpu/text/gguf/schema_shape.hpp"

#include <fmt/format.h>
#include <json.h>

#include <cmath>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace troupe::gguf {
namespace {

/// Keywords that say something about values, but for `type`: all others are for people.
constexpr std::array<std::string_view, 20> constraints{"$ref",      "oneOf",
                                                       "anyOf",     "allOf",
                                                       "const",     "enum",
                                                       "pattern",   "minLength",
                                                       "maxLength", "minimum",
                                                       "maximum",   "exclusiveMinimum",
                                                       "items",     "exclusiveMaximum",
                                                       "minItems",  "prefixItems",
                                                       "maxItems",  "properties",
                                                       "required",  "additionalProperties"};
constexpr std::array<std::string_view, 4> number_bounds{"minimum", "maximum", "exclusiveMinimum",
                                                        "exclusiveMaximum"};

using types = std::vector<std::string>;

types types_of(const common_json& schema) {
  if (!schema.contains("type")) return {};
  const auto& type = schema.at("type");
  if (type.is_string()) return {type.get<std::string>()};
  types out;
  for (const auto& one : type)
    if (one.is_string()) out.push_back(one.get<std::string>());
  return out;
}

bool has_type(const types& allowed, const common_json& value) {
  const auto integral = [&] {
    if (!value.is_number_float()) return true;
    const auto x = value.get<double>();
    return x == std::floor(x);
  };
  return (value.is_null() && among(allowed, "null")) ||
         (value.is_boolean() && among(allowed, "boolean")) ||
         (value.is_string() && among(allowed, "string")) ||
         (value.is_array() && among(allowed, "array")) ||
         (value.is_object() && among(allowed, "object")) ||
         (value.is_number() &&
          (among(allowed, "number") || (among(allowed, "integer") && integral())));
}

class holder {
 public:
  holder(common_json& schema, const common_json& root, const std::string& place)
      : schema_(schema), root_(root), place_(place) {}

  expected<void> hold() {
    const auto shape = shape_of(schema_);
    if (shape != schema_shape::types) return hold_as(shape);
    if (schema_.contains("allOf"))
      return refuse("`allOf` beside a list of types", "write one branch of `anyOf` for each type");
    for (const auto& type : types_of(schema_))
      if (auto done = hold_as(shape_of(schema_, type)); !done) return done;
    return ok;
  }

 private:
  error refuse(std::string_view what, std::string_view instead) const {
    return invalid_schema_at(
        place_, fmt::format("has {}, which no grammar can hold an answer to: {}", what, instead));
  }

  /// The first of `keys` that constrains here, but for those in `held`.
  template <class Keys>
  std::optional<std::string_view> first_of(const Keys& keys,
                                           std::initializer_list<std::string_view> held) const {
    for (const auto key : keys) {
      if (!schema_.contains(std::string(key)) || among(held, key)) continue;
      if (key == "additionalProperties" && schema_.at("additionalProperties") == true) continue;
      return key;
    }
    return std::nullopt;
  }

  expected<void> alone(const char* by, std::string_view instead) const {
    if (const auto other = first_of(constraints, {by}))
      return refuse(fmt::format("`{}` beside `{}`", *other, by), instead);
    return ok;
  }

  expected<void> hold_as(schema_shape shape) {
    switch (shape) {
    case schema_shape::reference:
      return hold_reference();
    case schema_shape::any_of:
      return hold_branches();
    case schema_shape::constant:
    case schema_shape::enumeration:
      return hold_values(shape == schema_shape::constant ? "const" : "enum");
    case schema_shape::object:
      return hold_object();
    case schema_shape::all_of:
      return hold_all_of();
    case schema_shape::array:
      return hold_array();
    case schema_shape::string:
      return hold_string();
    case schema_shape::integer:
      if (auto done = without_all_of(); !done) return done;
      return hold_integer();
    case schema_shape::number:
      if (auto done = without_all_of(); !done) return done;
      if (const auto bound = first_of(number_bounds, {}))
        return refuse(fmt::format("`{}` of a number", *bound),
                      "only integers can have bounds; leave it out, or make it an integer");
      return ok;
    case schema_shape::any:
      if (const auto key = first_of(constraints, {}))
        return refuse(fmt::format("`{}` without a `type`", *key), "say which type it is for");
      return ok;
    case schema_shape::simple:
      return without_all_of();
    case schema_shape::types:
    case schema_shape::unknown:
      return ok;
    }
    return ok;
  }

  expected<void> without_all_of() const {
    if (!schema_.contains("allOf")) return ok;
    return refuse("`allOf` beside other keywords", "write all that it says as one schema");
  }

  expected<void> hold_reference() const {
    if (auto done = alone("$ref", "put it where the reference leads to"); !done) return done;
    return narrower(schema_, "$ref");
  }

  expected<void> hold_branches() const {
    const auto* by = branches_keyword(schema_);
    if (auto done = alone(by, "put it into each branch"); !done) return done;
    const auto& branches = schema_.at(by);
    if (!branches.is_array()) return ok;
    for (const auto& branch : branches)
      if (auto done = narrower(branch, by); !done) return done;
    return ok;
  }

  /// What stands for this schema has types of its own, and they are among this one's.
  expected<void> narrower(const common_json& other, const char* by) const {
    const auto allowed = types_of(schema_);
    if (allowed.empty() || says_one_of(allowed, other)) return ok;
    return refuse(fmt::format("`type` beside `{}`", by), "put it into each schema that follows");
  }

  bool says_one_of(const types& allowed, const common_json& other) const {
    const auto* schema = behind_references(root_, other);
    if (schema == nullptr || !schema->is_object() || shape_of(*schema) == schema_shape::any_of)
      return false;
    if (schema->contains("const")) return has_type(allowed, schema->at("const"));
    if (schema->contains("enum")) {
      for (const auto& value : schema->at("enum"))
        if (!has_type(allowed, value)) return false;
      return true;
    }
    const auto own = types_of(*schema);
    return !own.empty() && std::all_of(own.begin(), own.end(), [&](const auto& type) {
      return among(allowed, type) || (type == "integer" && among(allowed, "number"));
    });
  }

  expected<void> hold_values(const char* by) const {
    if (auto done = alone(by, "leave it out, and list only values that it allows"); !done)
      return done;
    const auto allowed = types_of(schema_);
    if (allowed.empty() || says_one_of(allowed, schema_)) return ok;
    return refuse(fmt::format("`{}` with values that are not of its `type`", by),
                  "leave them or the type out");
  }

  expected<void> hold_object() const {
    if (auto done = without_all_of(); !done) return done;
    std::set<std::string> names;
    if (schema_.contains("properties") && schema_.at("properties").is_object())
      for (const auto& [name, ignored] : schema_.at("properties").items()) names.insert(name);
    if (auto done = hold_required(names); !done) return done;
    const bool open = schema_.contains("additionalProperties") &&
                      schema_.at("additionalProperties") != false;
    return open ? hold_other_names(names) : ok;
  }

  expected<void> hold_required(const std::set<std::string>& names) const {
    if (!schema_.contains("required") || !schema_.at("required").is_array()) return ok;
    for (const auto& name : schema_.at("required"))
      if (!name.is_string() || !names.contains(name.get<std::string>()))
        return refuse("a name in `required` that is none of its `properties`",
                      "describe it among them, `{}` if it may be anything");
    return ok;
  }

  /// Of a name that others must differ from the conversion makes classes of characters, unescaped.
  expected<void> hold_other_names(const std::set<std::string>& names) const {
    for (const auto& name : names)
      for (const char c : name)
        if (static_cast<unsigned char>(c) < ' ' || c == '\x7F' ||
            std::string_view("\"\\[]^-").find(c) != std::string_view::npos)
          return refuse("`additionalProperties` beside a property whose name has one of \"\\[]^-",
                        "set it to false, or give the property another name");
    return ok;
  }

  expected<void> hold_array() const {
    if (auto done = without_all_of(); !done) return done;
    if (schema_.contains("items") && schema_.contains("prefixItems"))
      return refuse("`prefixItems` beside `items`", "leave one of them out");
    const bool prefix = schema_.contains("prefixItems");
    if (!prefix && !schema_.contains("items")) return ok;
    const auto& items = schema_.at(prefix ? "prefixItems" : "items");
    if (!items.is_array()) return ok;
    // Exactly these items, whatever the keywords say.
    const auto size = static_cast<double>(items.size());
    const auto outside = [&](const char* key, bool low) {
      if (!schema_.contains(key) || !schema_.at(key).is_number()) return false;
      const auto n = schema_.at(key).get<double>();
      return low ? n > size : n < size;
    };
    for (const auto* key : {"minItems", "maxItems"})
      if (outside(key, key == std::string_view("minItems")))
        return refuse(fmt::format("`{}` and a list of {} items", key, items.size()),
                      "an answer has exactly those items");
    return ok;
  }

  expected<void> hold_string() {
    const bool format = schema_.contains("format") && schema_.at("format").is_string() &&
                        is_held_format(schema_.at("format").get<std::string>());
    const auto* by = schema_.contains("pattern") ? "pattern" : format ? "format" : nullptr;
    if (by == nullptr) return ok;
    for (const char* other : {"minLength", "maxLength", "format"})
      if (by != std::string_view(other) && schema_.contains(other) &&
          (format || other != std::string_view("format")))
        return refuse(fmt::format("`{}` beside `{}`", other, by),
                      "leave one of them out; a pattern may count, as in `{1,8}`");
    if (by == std::string_view("format") || !schema_.at("pattern").is_string()) return ok;
    auto written = pattern_of_json_text(schema_.at("pattern").get<std::string>());
    if (!written)
      return invalid_schema_at(
          place_, fmt::format("has a `pattern` with {}, which no grammar can hold an answer to",
                              written.error().message));
    schema_["pattern"] = *std::move(written);
    return ok;
  }

  /// A bound as the least or the greatest integer that it allows.
  expected<std::int64_t> bound(const char* key, bool low, bool exclusive) const {
    const auto& value = schema_.at(key);
    if (!value.is_number())
      return invalid_schema_at(place_, fmt::format("has no number as {}", key));
    const auto x = value.get<double>();
    constexpr auto far = static_cast<double>(integer_bound_max);
    if (low ? x < -far : x > far) return low ? -integer_bound_max : integer_bound_max;
    if (low ? x >= far : x <= -far)
      return invalid_schema_at(
          place_, fmt::format("has {} {}: integers of 16 digits are supported", key, value.dump()));
    const auto next = exclusive ? 1 : 0;
    if (value.is_number_integer()) return value.get<std::int64_t>() + (low ? next : -next);
    if (low) return static_cast<std::int64_t>(exclusive ? std::floor(x) : std::ceil(x)) + next;
    return static_cast<std::int64_t>(exclusive ? std::ceil(x) : std::floor(x)) - next;
  }

  expected<void> hold_integer() {
    if (!first_of(number_bounds, {})) return ok;
    std::int64_t low = -integer_bound_max;
    std::int64_t high = integer_bound_max;
    for (const auto* key : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
      if (!schema_.contains(key)) continue;
      const std::string_view name(key);
      const bool is_low = name.ends_with("inimum");
      auto one = bound(key, is_low, name.starts_with("exclusive"));
      if (!one) return one.error();
      (is_low ? low : high) = is_low ? std::max(low, *one) : std::min(high, *one);
    }
    if (low > high)
      return invalid_schema_at(place_, "can't be satisfied: no integer is within its bounds");
    for (const auto* key : {"exclusiveMinimum", "exclusiveMaximum"})
      if (schema_.contains(key)) schema_.erase(key);
    schema_["minimum"] = low;
    schema_["maximum"] = high;
    return ok;
  }

  expected<void> hold_all_of() const {
    if (const auto other = first_of(constraints, {"allOf", "required"}))
      return refuse(fmt::format("`{}` beside `allOf`", *other), "put it into one of its schemas");
    const auto& parts = schema_.at("allOf");
    if (!parts.is_array()) return ok;
    std::vector<const common_json*> all;
    for (const auto& part : parts) {
      const auto* schema = behind_references(root_, part);
      if (schema == nullptr) return unlike_parts();
      all.push_back(schema);
    }
    const auto are = [&](schema_shape shape) {
      return std::all_of(all.begin(), all.end(),
                         [&](const auto* schema) { return shape_of(*schema) == shape; });
    };
    if (are(schema_shape::object)) return hold_merged(all);
    if (are(schema_shape::enumeration)) return hold_intersection(all);
    return unlike_parts();
  }

  expected<void> unlike_parts() const {
    return refuse("`allOf` of other schemas than objects with `properties`, or enumerations",
                  "write all that it says as one schema");
  }

  /// Objects become one, closed, with all properties required.
  expected<void> hold_merged(const std::vector<const common_json*>& objects) const {
    for (const auto& type : types_of(schema_))
      if (type != "object")
        return refuse("`allOf` of objects beside another `type`", "leave it out");
    std::set<std::string> names;
    for (const auto* object : objects) {
      if (objects.size() > 1 && object->contains("additionalProperties") &&
          object->at("additionalProperties") != true)
        return refuse("`allOf` of several objects, one of them with `additionalProperties`",
                      "write all that it says as one schema");
      if (!object->contains("properties") || !object->at("properties").is_object()) continue;
      for (const auto& [name, ignored] : object->at("properties").items())
        if (!names.insert(name).second)
          return refuse("`allOf` of objects that have a property in common",
                        "write all that it says as one schema");
    }
    return hold_required(names);
  }

  expected<void> hold_intersection(const std::vector<const common_json*>& lists) const {
    if (schema_.contains("required") || schema_.contains("type"))
      return refuse("`allOf` of enumerations beside other keywords", "leave them out");
    std::optional<std::set<std::string>> common;
    for (const auto* list : lists) {
      std::set<std::string> here;
      for (const auto& value : list->at("enum"))
        if (!here.insert(value.dump()).second)
          return refuse("`allOf` of an enumeration with the same value twice", "list it once");
      if (common) std::erase_if(*common, [&](const auto& value) { return !here.contains(value); });
      if (!common) common = std::move(here);
    }
    if (common && !common->empty()) return ok;
    return invalid_schema_at(place_,
                             "can't be satisfied: its enumerations have no value in common");
  }

  common_json& schema_;
  const common_json& root_;
  const std::string& place_;
};

}  // namespace

expected<void> hold(common_json& schema, const common_json& root, const std::string& place) {
  return holder(schema, root, place).hold();
}

}  // namespace troupe::gguf
