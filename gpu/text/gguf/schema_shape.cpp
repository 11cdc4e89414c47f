#include "gpu/text/gguf/schema_shape.hpp"

#include "gpu/text/gguf/schema_check.hpp"
#include "gpu/text/utf8.hpp"

#include <fmt/format.h>
#include <json.h>

#include <charconv>

namespace troupe::gguf {
namespace {

bool has_held_format(const common_json& schema) {
  return schema.contains("format") && schema.at("format").is_string() &&
         is_held_format(schema.at("format").get<std::string>());
}

schema_shape shape_without_type(const common_json& schema, bool has_properties) {
  if (has_properties) return schema_shape::object;
  if (schema.contains("allOf")) return schema_shape::all_of;
  if (schema.contains("items") || schema.contains("prefixItems")) return schema_shape::array;
  for (const char* key : {"pattern", "minLength", "maxLength"})
    if (schema.contains(key)) return schema_shape::string;
  return has_held_format(schema) ? schema_shape::string : schema_shape::any;
}

schema_shape shape_of_type(const common_json& schema, std::string_view type, bool has_properties) {
  const bool all_of = schema.contains("allOf");
  if (type == "object")
    return all_of && !has_properties ? schema_shape::all_of : schema_shape::object;
  if (type == "string") return all_of ? schema_shape::all_of : schema_shape::string;
  if (type == "array") return schema_shape::array;
  if (type == "integer") return schema_shape::integer;
  if (type == "number") return schema_shape::number;
  if (type == "boolean" || type == "null") return schema_shape::simple;
  return schema_shape::unknown;
}

}  // namespace

bool is_held_format(std::string_view format) {
  constexpr std::array<std::string_view, 9> held{"date",  "time",  "date-time", "uuid", "uuid1",
                                                 "uuid2", "uuid3", "uuid4",     "uuid5"};
  return among(held, format);
}

schema_shape shape_of(const common_json& schema, std::string_view type) {
  if (schema.contains("const")) return schema_shape::constant;
  if (schema.contains("enum")) return schema_shape::enumeration;
  const bool has_properties = schema.contains("properties") ||
                              (schema.contains("additionalProperties") &&
                               schema.at("additionalProperties") != true);
  return type.empty() ? shape_without_type(schema, has_properties)
                      : shape_of_type(schema, type, has_properties);
}

schema_shape shape_of(const common_json& schema) {
  if (!schema.is_object()) return schema_shape::unknown;
  if (schema.contains("$ref")) return schema_shape::reference;
  if (schema.contains("oneOf") || schema.contains("anyOf")) return schema_shape::any_of;
  if (!schema.contains("type")) return shape_of(schema, {});
  const auto& type = schema.at("type");
  if (type.is_array()) return schema_shape::types;
  return shape_of(schema, type.is_string() ? type.get<std::string>() : std::string());
}

const char* branches_keyword(const common_json& schema) {
  return schema.contains("oneOf") ? "oneOf" : "anyOf";
}

const common_json* find_schema(const common_json& root, std::string_view reference) {
  if (!reference.starts_with("#/")) return nullptr;
  reference.remove_prefix(1);
  const auto* here = &root;
  bool in_map = false;
  while (reference.starts_with('/')) {
    reference.remove_prefix(1);
    const std::string key(reference.substr(0, reference.find('/')));
    reference.remove_prefix(key.size());
    if (here->is_array() && !in_map) {
      std::size_t index = 0;
      const auto* end = key.data() + key.size();
      if (auto [stop, bad] = std::from_chars(key.data(), end, index);
          bad != std::errc{} || stop != end || index >= here->size())
        return nullptr;
      here = &here->at(index);
      continue;
    }
    if (!here->is_object() || !here->contains(key)) return nullptr;
    if (!in_map && among(data_keywords, key)) return nullptr;
    in_map = !in_map && among(maps_of_schemas, key);
    here = &here->at(key);
  }
  return in_map ? nullptr : here;
}

const common_json* behind_references(const common_json& root, const common_json& schema) {
  const auto* here = &schema;
  for (int hops = 0; here != nullptr && here->is_object() && here->contains("$ref"); ++hops) {
    const auto& reference = here->at("$ref");
    if (hops > schema_depth_max || !reference.is_string()) return nullptr;
    here = find_schema(root, reference.get<std::string>());
  }
  return here;
}

error invalid_schema_at(std::string_view place, std::string_view why) {
  constexpr std::size_t shown_bytes_max = 200;
  return {"invalid_schema",
          fmt::format("the schema at {} {}", text::beginning(place, shown_bytes_max), why),
          "response_format.json_schema"};
}

}  // namespace troupe::gguf
