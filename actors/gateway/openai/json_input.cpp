#include "actors/gateway/openai/json_input.hpp"

#include <fmt/format.h>

namespace troupe::gateway::openai {

namespace {

// A key comes from the client and may be as long as the body; an error message need not be.
constexpr std::size_t shown_key_bytes_max = 100;

std::string_view shown(std::string_view key) {
  if (key.size() <= shown_key_bytes_max) return key;
  auto end = shown_key_bytes_max;
  while (end > 0 && (static_cast<unsigned char>(key[end]) & 0xc0U) == 0x80U) --end;
  return key.substr(0, end);
}

}  // namespace

std::string path::text() const {
  if (parent_ == nullptr) return {};
  auto above = parent_->text();
  if (is_index_) return fmt::format("{}[{}]", above, index_);
  return above.empty() ? std::string(shown(key_)) : fmt::format("{}.{}", above, shown(key_));
}

std::string_view type_name(json value) {
  using simdjson::dom::element_type;
  switch (value.type()) {
  case element_type::ARRAY:
    return "an array";
  case element_type::OBJECT:
    return "an object";
  case element_type::INT64:
  case element_type::UINT64:
    return "an integer";
  case element_type::DOUBLE:
    return "a number with a fraction or exponent";
  case element_type::STRING:
    return "a string";
  case element_type::BOOL:
    return "a boolean";
  case element_type::NULL_VALUE:
    return "null";
  }
  return "something else";
}

bool checker::refuse(const path& at, std::string_view code, std::string message, int status) {
  if (!error_) {
    error_ = make_error(status, std::string(code), std::move(message), at.text());
  }
  return false;
}

bool checker::wrong_type(const path& at, std::string_view wanted, json value) {
  auto where = at.text();
  return refuse(at, "invalid_type",
                fmt::format("{} must be {}, but is {}.",
                            where.empty() ? "The body" : fmt::format("'{}'", where), wanted,
                            type_name(value)));
}

bool checker::text(const path& at, json value, std::string_view& out) {
  return value.get_string().get(out) == simdjson::SUCCESS || wrong_type(at, "a string", value);
}

bool checker::boolean(const path& at, json value, bool& out) {
  return value.get_bool().get(out) == simdjson::SUCCESS || wrong_type(at, "a boolean", value);
}

bool checker::integer(const path& at, json value, std::int64_t low, std::int64_t high,
                      std::int64_t& out) {
  if (!value.is_int64() && !value.is_uint64()) return wrong_type(at, "an integer", value);
  if (value.get_int64().get(out) != simdjson::SUCCESS || out < low || out > high)
    return refuse(at, "invalid_value",
                  fmt::format("'{}' must be from {} to {}.", at.text(), low, high));
  return true;
}

bool checker::number(const path& at, json value, double low, double high, float& out) {
  double d = 0;
  if (value.get_double().get(d) != simdjson::SUCCESS) return wrong_type(at, "a number", value);
  if (!(d >= low && d <= high))
    return refuse(at, "invalid_value",
                  fmt::format("'{}' must be from {} to {}.", at.text(), low, high));
  out = static_cast<float>(d);
  return true;
}

bool checker::object(const path& at, json value, simdjson::dom::object& out) {
  return value.get_object().get(out) == simdjson::SUCCESS || wrong_type(at, "an object", value);
}

bool checker::array(const path& at, json value, simdjson::dom::array& out) {
  return value.get_array().get(out) == simdjson::SUCCESS || wrong_type(at, "an array", value);
}

}  // namespace troupe::gateway::openai
