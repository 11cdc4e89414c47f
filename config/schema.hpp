#pragma once

#include "config/calibration.hpp"
#include "config/cluster.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace troupe::config {

/// What a key of the cluster file accepts.
enum class value_type : std::uint8_t {
  text,         ///< any string
  name,         ///< of a host, pool or cluster; also a reference to one
  model_name,   ///< of a model; also a reference to one
  label,        ///< of a place: a name, or empty
  address,      ///< an IP address
  path,         ///< of a file; expanded by `expand_path`
  names,        ///< an array of names
  model_names,  ///< an array of model names
  key_hashes,   ///< an array of `is_key_hash`
  dns_names,    ///< an array of `is_dns_pattern`
  cpus,         ///< an array of `parse_cpus`
  flag,         ///< true or false
  count,        ///< an integer
  number,       ///< an integer or a float
  bytes,        ///< "64MiB", or an integer
  duration,     ///< "500ms", "10s", "2m"
  choice,       ///< one of a few words
};

/// Limits of a value. `min` and `max` bound counts, numbers, bytes and durations (ms), inclusively.
struct rule {
  value_type type = value_type::text;
  bool required = false;
  std::int64_t min = 0;
  std::int64_t max = 0;
  std::span<const std::string_view> choices = {};
  /// Of a number: more than 0, or not set at all, which is then 0.
  bool positive = false;
};

/// Where a value goes. Enumerations are indices into `rule::choices`.
using slot =
    std::variant<std::string*, bool*, std::uint16_t*, std::uint32_t*, std::uint64_t*, double*,
                 milliseconds*, std::vector<std::string>*, engine_kind*, pool_role*>;

/// One key of a section: the only place that knows its name, type, range and meaning.
template <class Section>
struct field {
  std::string_view name;
  rule accepts;
  slot (*at)(Section&);
  std::string_view doc;
};

/// A field of one record, for code that serves all sections.
struct bound_field {
  std::string_view name;
  rule accepts;
  slot at;
  std::string_view doc;
};

/// Specialised for each section: cluster (the section [cluster]), host, model, pool, simulation
/// ([pool.simulation]), gateway, router, control, tenant, tenant_limit ([[tenant.limit]]), limits,
/// health, transfer; and calibration, which is [costs] of a file of its own.
template <class Section>
std::span<const field<Section>> fields();

template <>
std::span<const field<cluster>> fields<cluster>();
template <>
std::span<const field<host>> fields<host>();
template <>
std::span<const field<model>> fields<model>();
template <>
std::span<const field<pool>> fields<pool>();
template <>
std::span<const field<simulation>> fields<simulation>();
template <>
std::span<const field<gateway>> fields<gateway>();
template <>
std::span<const field<router>> fields<router>();
template <>
std::span<const field<struct control>> fields<struct control>();
template <>
std::span<const field<tenant>> fields<tenant>();
template <>
std::span<const field<tenant_limit>> fields<tenant_limit>();
template <>
std::span<const field<struct limits>> fields<struct limits>();
template <>
std::span<const field<struct health>> fields<struct health>();
template <>
std::span<const field<struct transfer>> fields<struct transfer>();
template <>
std::span<const field<calibration>> fields<calibration>();

template <class Section>
std::vector<bound_field> bind(Section& record) {
  std::vector<bound_field> out;
  for (const auto& f : fields<Section>()) out.push_back({f.name, f.accepts, f.at(record), f.doc});
  return out;
}

/// One section of a cluster with its values, for printing and digests: `path` is `limits`,
/// `pool[1].simulation` or `tenant[0].limit[2]`, `header` is `[limits]` or `[[pool]]`.
struct bound_section {
  std::string name;  ///< `pool`, also for its subsections
  std::string path;
  std::string header;
  std::vector<bound_field> fields;
};

/// All sections in the order of the schema, records in the order of the file.
std::vector<bound_section> bind_all(cluster& c);

/// The names of all sections; `repeated` ones are written [[name]].
struct section_name {
  std::string_view name;
  bool repeated;
};
std::span<const section_name> section_names();

/// "an integer from 1 to 256", "a duration such as \"500ms\" from 10ms to 1h": for messages and the
/// reference.
std::string describe(const rule& accepts);

}  // namespace troupe::config
