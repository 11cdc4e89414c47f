#include "config/section_reader.hpp"

#include "config/values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace troupe::config {

namespace {

/// A quoted piece of a file in a message is cut to this.
constexpr std::size_t quoted_bytes_max = 60;

std::string quote(const std::string& text) {
  std::string out = "\"";
  for (const char c : text.substr(0, quoted_bytes_max))
    out += static_cast<unsigned char>(c) < ' ' || c == 0x7f ? '?' : c;
  if (text.size() > quoted_bytes_max) {
    // Not in the middle of a character.
    while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xc0U) == 0x80U)
      out.pop_back();
    if (static_cast<unsigned char>(out.back()) >= 0xc0U) out.pop_back();
    out += "...";
  }
  return out + "\"";
}

/// One value against its rule: the slot is written, or the answer says that it does not fit.
class writer {
 public:
  writer(const toml::node& node, const rule& accepts) : node_(node), rule_(accepts) {}

  bool operator()(std::string* out) const {
    const auto text = node_.value_exact<std::string>();
    if (!text) return false;
    switch (rule_.type) {
    case value_type::name:
      if (!is_name(*text)) return false;
      break;
    case value_type::label:
      if (!text->empty() && !is_name(*text)) return false;
      break;
    case value_type::model_name:
      if (!is_model_name(*text)) return false;
      break;
    case value_type::address:
      if (!is_address(*text)) return false;
      break;
    case value_type::choice:
      if (!choice()) return false;
      break;
    default:
      break;
    }
    *out = *text;
    return true;
  }

  bool operator()(bool* out) const { return store(node_.value_exact<bool>(), out); }
  bool operator()(std::uint16_t* out) const { return store(integer(), out); }
  bool operator()(std::uint32_t* out) const { return store(integer(), out); }
  bool operator()(std::uint64_t* out) const { return store(integer(), out); }
  bool operator()(engine_kind* out) const { return store(choice(), out); }
  bool operator()(pool_role* out) const { return store(choice(), out); }

  bool operator()(double* out) const {
    if (!node_.is_number()) return false;
    const auto number = node_.value<double>();
    if (!number || !std::isfinite(*number)) return false;
    if (*number < static_cast<double>(rule_.min) || *number > static_cast<double>(rule_.max) ||
        (rule_.positive && *number <= 0))
      return false;
    *out = *number;
    return true;
  }

  bool operator()(milliseconds* out) const {
    const auto text = node_.value_exact<std::string>();
    const auto duration = text ? parse_duration(*text) : std::nullopt;
    if (!duration || duration->count() < rule_.min || duration->count() > rule_.max) return false;
    *out = *duration;
    return true;
  }

  bool operator()(std::vector<std::string>* out) const {
    const auto* array = node_.as_array();
    if (array == nullptr) return false;
    std::vector<std::string> names;
    for (const auto& element : *array) {
      auto text = element.value_exact<std::string>();
      if (!text || !fits(*text)) return false;
      names.push_back(*std::move(text));
    }
    if (names.empty() && needs_one()) return false;
    *out = std::move(names);
    return true;
  }

 private:
  bool needs_one() const { return rule_.required && rule_.type != value_type::names; }

  /// One of an array.
  bool fits(const std::string& text) const {
    switch (rule_.type) {
    case value_type::cpus:
      return parse_cpus(text).has_value();
    case value_type::dns_names:
      return is_dns_pattern(text);
    case value_type::model_names:
      return is_model_name(text);
    case value_type::key_hashes:
      return is_key_hash(text);
    default:
      return is_name(text);
    }
  }

  template <class From, class To>
  static bool store(const std::optional<From>& value, To* out) {
    if (value) *out = static_cast<To>(*value);
    return value.has_value();
  }

  std::optional<std::int64_t> integer() const {
    auto value = node_.value_exact<std::int64_t>();
    if (!value && rule_.type == value_type::bytes)
      if (const auto text = node_.value_exact<std::string>())
        if (const auto bytes = parse_bytes(*text)) value = static_cast<std::int64_t>(*bytes);
    return value && *value >= rule_.min && *value <= rule_.max ? value : std::nullopt;
  }

  std::optional<std::size_t> choice() const {
    const auto text = node_.value_exact<std::string>();
    if (!text) return std::nullopt;
    const auto i = std::find(rule_.choices.begin(), rule_.choices.end(), *text);
    if (i == rule_.choices.end()) return std::nullopt;
    return static_cast<std::size_t>(i - rule_.choices.begin());
  }

  const toml::node& node_;
  const rule& rule_;
};

/// Of an array of hashes. What is none may be the key itself, which must not get into a log.
std::string describe_hashes(const toml::node& node) {
  const auto* array = node.as_array();
  for (std::size_t i = 0; array != nullptr && i < array->size(); ++i)
    if (const auto text = array->get(i)->value_exact<std::string>(); !text || !is_key_hash(*text))
      return fmt::format("an array whose element {} is no hash (not shown, in case it is a key)",
                         i + 1);
  return node.is_string() ? "a string (not shown, in case it is a key)"
                          : section_reader::describe_found(node);
}

std::string choice_hint(const toml::node& node, const rule& accepts) {
  if (accepts.type != value_type::choice) return {};
  const auto word = nearest(node.value_or(std::string{}),
                            {accepts.choices.begin(), accepts.choices.end()});
  return word.empty() ? "" : fmt::format("; did you mean \"{}\"?", word);
}

}  // namespace

std::string section_reader::describe_found(const toml::node& node) {
  switch (node.type()) {
  case toml::node_type::table:
    return "a table";
  case toml::node_type::array: {
    if (node.is_array_of_tables()) return "an array of tables";
    if (node.as_array()->empty()) return "an empty array";
    for (const auto& element : *node.as_array())
      if (const auto text = element.value<std::string>();
          !text || (!is_name(*text) && !is_dns_pattern(*text)))
        return fmt::format("an array with {}",
                           element.is_array() ? "an array" : describe_found(element));
    return "an array";
  }
  case toml::node_type::string:
    return fmt::format("the string {}", quote(node.value_or(std::string{})));
  case toml::node_type::integer:
    return fmt::format("the integer {}", node.value_or(std::int64_t{0}));
  case toml::node_type::floating_point:
    return fmt::format("the number {}", node.value_or(0.0));
  case toml::node_type::boolean:
    return node.value_or(false) ? "true" : "false";
  default:
    return "a date or time";
  }
}

location section_reader::at(const toml::source_region& region) const {
  return {file_, region.begin.line, region.begin.column};
}

void section_reader::fail(location where, std::string message) {
  problems_.push_back({std::move(where), std::move(message)});
}

void section_reader::read_value(const toml::node& node, const std::string& key,
                                const bound_field& field) {
  const auto where = at(node.source());
  // Noted even when the value is wrong: checks of other values then know that this one was meant to
  // be set.
  origins_[key] = where;
  if (!std::visit(writer{node, field.accepts}, field.at))
    fail(where, fmt::format("`{}` is {}; expected {}{}", field.name,
                            field.accepts.type == value_type::key_hashes ? describe_hashes(node)
                                                                         : describe_found(node),
                            describe(field.accepts), choice_hint(node, field.accepts)));
}

void section_reader::read(const toml::table& table, const std::string& path,
                          const std::string& header, const std::vector<bound_field>& fields,
                          const std::vector<std::string>& subtables) {
  std::vector<std::string> known = subtables;
  for (const auto& f : fields) known.emplace_back(f.name);
  for (const auto& [key, node] : table) {
    const std::string name{key.str()};
    const auto f = std::find_if(fields.begin(), fields.end(),
                                [&](const bound_field& x) { return x.name == name; });
    if (f != fields.end()) {
      read_value(node, fmt::format("{}.{}", path, name), *f);
    } else if (std::find(subtables.begin(), subtables.end(), name) == subtables.end()) {
      const auto near = nearest(name, known);
      fail(at(key.source()),
           fmt::format("{} has no key {}{}", header, quote(name),
                       near.empty() ? "" : fmt::format("; did you mean `{}`?", near)));
    }
  }
  for (const auto& f : fields)
    if (f.accepts.required && !table.contains(f.name))
      fail(at(table.source()),
           fmt::format("{} needs `{}`: {}", header, f.name, describe(f.accepts)));
}

}  // namespace troupe::config
