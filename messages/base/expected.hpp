#pragma once

#include <string>
#include <utility>
#include <variant>

namespace troupe {

/// What went wrong, for a person and for a program: `code` is stable and machine-readable
/// (`kv_exhausted`), `message` says what, where and what to do. A value type; thread-compatible.
struct error {
  std::string code;
  std::string message;
  /// The request's parameter at fault (`messages[0].content`), where there is one.
  std::string parameter = {};

  friend bool operator==(const error&, const error&) = default;
};

/// Tag for `expected<void>`.
struct ok_t {};
inline constexpr ok_t ok{};

/// A value or an `error` (C++20 has no std::expected). Reading the wrong side is a programming
/// error and throws std::bad_variant_access.
template <class T>
class [[nodiscard]] expected {
 public:
  using value_type = T;

  expected(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  expected(troupe::error failure) : state_(std::in_place_index<1>, std::move(failure)) {}

  explicit operator bool() const noexcept { return state_.index() == 0; }
  bool has_value() const noexcept { return state_.index() == 0; }

  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T&& operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }

  const troupe::error& error() const& { return std::get<1>(state_); }
  troupe::error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, troupe::error> state_;
};

template <>
class [[nodiscard]] expected<void> {
 public:
  expected() = default;
  expected(ok_t) {}
  expected(troupe::error failure) : state_(std::in_place_index<1>, std::move(failure)) {}

  explicit operator bool() const noexcept { return state_.index() == 0; }
  bool has_value() const noexcept { return state_.index() == 0; }

  const troupe::error& error() const& { return std::get<1>(state_); }
  troupe::error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<std::monostate, troupe::error> state_;
};

}  // namespace troupe
