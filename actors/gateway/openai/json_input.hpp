#pragma once

#include "actors/gateway/openai/api_error.hpp"

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace troupe::gateway::openai {

using json = simdjson::dom::element;

/// Where a value stands in the body. A chain of stack frames, made text only when there is
/// something to complain about.
class path {
 public:
  path() = default;
  path(const path& parent, std::string_view key) : parent_(&parent), key_(key) {}
  path(const path& parent, std::size_t index) : parent_(&parent), index_(index), is_index_(true) {}

  std::string text() const;

 private:
  const path* parent_ = nullptr;
  std::string_view key_;
  std::size_t index_ = 0;
  bool is_index_ = false;
};

/// Reads checked values out of a parsed body and keeps the first complaint. Every reading function
/// returns false once something is wrong; `error()` then says what. Not thread-safe.
class checker {
 public:
  const api_error& error() const { return *error_; }

  /// Keeps the complaint (the first one wins) and returns false.
  bool refuse(const path& at, std::string_view code, std::string message, int status = 400);
  bool wrong_type(const path& at, std::string_view wanted, json value);

  bool text(const path& at, json value, std::string_view& out);
  bool boolean(const path& at, json value, bool& out);
  bool integer(const path& at, json value, std::int64_t low, std::int64_t high, std::int64_t& out);
  bool number(const path& at, json value, double low, double high, float& out);
  bool object(const path& at, json value, simdjson::dom::object& out);
  bool array(const path& at, json value, simdjson::dom::array& out);

 private:
  std::optional<api_error> error_;
};

/// A person's name for the type of a value: "a string".
std::string_view type_name(json value);

}  // namespace troupe::gateway::openai
