#include "config/effective.hpp"

#include "config/problem.hpp"
#include "config/schema.hpp"
#include "config/values.hpp"

#include <fmt/format.h>

#include <xxhash.h>

#include <algorithm>

namespace troupe::config {

namespace {

/// Comments of `print_effective` begin in this column, where values are short enough.
constexpr int comment_column = 48;

std::string quote(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += fmt::format("\\{}", c);
    else if (static_cast<unsigned char>(c) < ' ' || c == 0x7f)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out + "\"";
}

/// A value as TOML.
struct printer {
  const rule& accepts;

  std::string operator()(const std::string* value) const { return quote(*value); }
  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const std::uint16_t* value) const { return fmt::format("{}", *value); }
  std::string operator()(const std::uint32_t* value) const { return fmt::format("{}", *value); }
  std::string operator()(const std::uint64_t* value) const {
    return accepts.type == value_type::bytes ? quote(format_bytes(*value))
                                             : fmt::format("{}", *value);
  }
  std::string operator()(const double* value) const { return fmt::format("{}", *value); }
  std::string operator()(const milliseconds* value) const { return quote(format_duration(*value)); }
  std::string operator()(const engine_kind* value) const { return quote(to_string(*value)); }
  std::string operator()(const pool_role* value) const { return quote(to_string(*value)); }
  std::string operator()(const std::vector<std::string>* value) const {
    std::string out = "[";
    for (const auto& name : *value) out += (out.size() > 1 ? ", " : "") + quote(name);
    return out + "]";
  }
};

std::string value_of(const bound_field& f) { return std::visit(printer{f.accepts}, f.at); }

/// 0 stands for a number that isn't set, and could not be written.
bool is_unset(const bound_field& f) {
  const auto* const* number = std::get_if<double*>(&f.at);
  return f.accepts.positive && number != nullptr && **number == 0;
}

std::string print_section(const bound_section& s, const cluster* origins_of) {
  std::string out = s.header + "\n";
  for (const auto& f : s.fields) {
    if (is_unset(f)) {
      if (origins_of != nullptr) out += fmt::format("# {} is not set\n", f.name);
      continue;
    }
    auto line = fmt::format("{} = {}", f.name, value_of(f));
    if (origins_of != nullptr) {
      const auto i = origins_of->origins.find(fmt::format("{}.{}", s.path, f.name));
      line = fmt::format("{:<{}}  # {}", line, comment_column,
                         i == origins_of->origins.end() ? "default" : to_string(i->second));
    }
    out += line + "\n";
  }
  return out;
}

/// `bind_all` hands out places to write to, which printing does not use.
std::vector<bound_section> sections_of(const cluster& c) {
  return bind_all(const_cast<cluster&>(c));
}

template <class Section>
std::string reference_of(const std::string& header) {
  Section defaults{};
  auto out = header + "\n";
  for (const auto& f : bind(defaults)) {
    const auto what = f.accepts.required ? std::string{"required"}
                      : is_unset(f)      ? std::string{"not set by default"}
                                         : fmt::format("default {}", value_of(f));
    out += fmt::format("  {} ({})\n      {}\n      {}\n", f.name, what, f.doc, describe(f.accepts));
  }
  return out + "\n";
}

}  // namespace

void set_digests(cluster& c) {
  std::map<std::string, std::string> texts;
  std::string all;
  for (const auto& s : sections_of(c)) {
    const auto text = print_section(s, nullptr);
    texts[s.name] += text;
    all += text;
  }
  for (const auto& [pool, costs] : read_costs(c).of_pool) {
    const auto text = fmt::format("# {}\n{}", pool, print_costs(costs));
    texts["costs"] += text;
    all += text;
  }
  c.section_digests.clear();
  for (const auto& [name, text] : texts)
    c.section_digests[name] = XXH3_64bits(text.data(), text.size());
  const auto digest = XXH3_128bits(all.data(), all.size());
  c.digest = fmt::format("{:016x}{:016x}", digest.high64, digest.low64);
}

std::string print_effective(const cluster& c, bool with_origins) {
  std::string out;
  for (const auto& s : sections_of(c))
    out += (out.empty() ? "" : "\n") + print_section(s, with_origins ? &c : nullptr);
  return out;
}

std::string print_costs(const calibration& c) {
  auto copy = c;  // `bind` hands out places to write to
  return print_section({"costs", "costs", "[costs]", bind(copy)}, nullptr);
}

std::string print_reference() {
  return reference_of<cluster>("[cluster]") + reference_of<host>("[[host]]") +
         reference_of<model>("[[model]]") + reference_of<pool>("[[pool]]") +
         reference_of<simulation>("[pool.simulation]") + reference_of<gateway>("[[gateway]]") +
         reference_of<router>("[[router]]") + reference_of<struct control>("[control]") +
         reference_of<tenant>("[[tenant]]") + reference_of<tenant_limit>("[[tenant.limit]]") +
         reference_of<struct limits>("[limits]") + reference_of<struct health>("[health]") +
         reference_of<struct transfer>("[transfer]") +
         "Of a file that a pool's `costs` names:\n\n" + reference_of<calibration>("[costs]");
}

}  // namespace troupe::config
