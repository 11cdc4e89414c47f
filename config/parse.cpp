#include "config/parse.hpp"

#include "config/check.hpp"
#include "config/effective.hpp"
#include "config/nesting.hpp"
#include "config/section_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <tuple>

namespace troupe::config {

namespace {

// Parts of what a tenant is guaranteed in a minute. With these it never uses more than 110 % of it
// in one, whatever becomes of gateways and links.
constexpr double default_burst = 0.05;
constexpr double default_isolated = 0.05;     // of each gateway
constexpr double default_all_isolated = 0.5;  // of all gateways together

class file_parser {
 public:
  file_parser(const std::string& filename, const environment& env)
      : filename_(filename), env_(env), reader_(filename, problems_, cluster_.origins) {
    cluster_.file = filename;
    std::error_code failure;
    folder_ = std::filesystem::absolute(filename, failure).parent_path().string();
  }

  load_result run(std::string_view text) {
    try {
      const auto root = toml::parse(text, filename_);
      read(root);
      for (auto& p : check(cluster_)) problems_.push_back(std::move(p));
    } catch (const toml::parse_error& e) {
      reader_.fail(reader_.at(e.source()), fmt::format("not TOML: {}", e.description()));
    } catch (const std::exception& e) {
      reader_.fail({filename_, 0, 0}, fmt::format("cannot be read: {}", e.what()));
    }
    return finish();
  }

 private:
  void read(const toml::table& root) {
    unknown_sections(root);
    once(root, "cluster", cluster_);
    certificates_of(root);
    if (!root.contains("cluster"))
      reader_.fail({filename_, 0, 0}, "no [cluster]: its `id` keeps clusters apart");
    each(root, "host", cluster_.hosts,
         [](const toml::table&, const std::string&, host& h) { h.place.host = h.name; });
    each(root, "model", cluster_.models,
         [this](const toml::table& t, const std::string&, model& m) {
           expand(t, "path", m.path_written, m.path);
           expand(t, "chat_template_file", m.chat_template_file_written, m.chat_template_file);
         });
    each(root, "pool", cluster_.pools,
         [this](const toml::table& t, const std::string& path, pool& p) {
           simulation_of(t, path, p);
           expand(t, "costs", p.costs_written, p.costs);
         },
         {"simulation"});
    each(root, "gateway", cluster_.gateways,
         [this](const toml::table& t, const std::string&, gateway& g) {
           expand(t, "certificate", g.certificate_written, g.certificate);
           expand(t, "key", g.key_written, g.key);
         });
    each(root, "router", cluster_.routers);
    control_of(root);
    each(
        root, "tenant", cluster_.tenants,
        [this](const toml::table& t, const std::string& path, tenant& x) { limits_of(t, path, x); },
        {"limit"});
    once(root, "limits", cluster_.limits);
    once(root, "health", cluster_.health);
    once(root, "transfer", cluster_.transfer);
    complete_limits();
  }

  void unknown_sections(const toml::table& root) {
    std::vector<std::string> known;
    for (const auto& s : section_names()) known.emplace_back(s.name);
    for (const auto& [key, node] : root) {
      const std::string name{key.str()};
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      // Of a table, the header; of a value, its key.
      const auto near = nearest(name, known);
      const auto hint = near.empty() ? std::string{} : fmt::format("; did you mean `{}`?", near);
      reader_.fail(reader_.at(key.source()), fmt::format("there is no section or key `{}`{}",
                                                         name.substr(0, name_chars_max), hint));
    }
  }

  template <class Section>
  void once(const toml::table& root, const char* name, Section& into) {
    const auto* node = root.get(name);
    if (node == nullptr) return;
    if (const auto* table = node->as_table()) {
      reader_.read(*table, name, fmt::format("[{}]", name), bind(into));
      return;
    }
    reader_.fail(reader_.at(node->source()),
                 fmt::format("`{}` is {}; it is a section of its own and stands once: [{}]", name,
                             section_reader::describe_found(*node), name));
  }

  template <class Section, class Then>
  void each(const toml::table& root, const char* name, std::vector<Section>& into, Then then,
            const std::vector<std::string>& subtables = {}) {
    const auto* node = root.get(name);
    if (node == nullptr) return;
    const auto* tables = node->as_array();
    if (tables == nullptr || !tables->is_array_of_tables()) {
      reader_.fail(reader_.at(node->source()),
                   fmt::format("`{}` is {}; write [[{}]], once for each {}", name,
                               section_reader::describe_found(*node), name, name));
      return;
    }
    for (const auto& element : *tables) {
      const auto& table = *element.as_table();
      const auto path = fmt::format("{}[{}]", name, into.size());
      auto& record = into.emplace_back();
      record.where = reader_.at(table.source());
      reader_.read(table, path, fmt::format("[[{}]]", name), bind(record), subtables);
      then(table, path, record);
    }
  }

  template <class Section>
  void each(const toml::table& root, const char* name, std::vector<Section>& into) {
    each(root, name, into, [](const toml::table&, const std::string&, Section&) {});
  }

  void control_of(const toml::table& root) {
    const auto* node = root.get("control");
    if (node == nullptr) return;
    struct control c;
    c.where = reader_.at(node->source());
    once(root, "control", c);
    const auto* table = node->as_table();
    if (table == nullptr) return;
    expand(*table, "state", c.state_written, c.state);
    cluster_.control = std::move(c);
  }

  void simulation_of(const toml::table& table, const std::string& path, pool& p) {
    const auto* node = table.get("simulation");
    if (node == nullptr) return;
    const auto where = reader_.at(node->source());
    cluster_.origins[path + ".simulation"] = where;
    if (const auto* simulation = node->as_table())
      reader_.read(*simulation, path + ".simulation", "[pool.simulation]", bind(p.sim));
    else
      reader_.fail(
          where,
          fmt::format("`simulation` is {}; it is a section below its pool: [pool.simulation]",
                      section_reader::describe_found(*node)));
  }

  void limits_of(const toml::table& table, const std::string& path, tenant& t) {
    const auto* node = table.get("limit");
    if (node == nullptr) return;
    const auto* tables = node->as_array();
    if (tables == nullptr || !tables->is_array_of_tables())
      return reader_.fail(
          reader_.at(node->source()),
          fmt::format("`limit` is {}; write [[tenant.limit]] below its tenant, once for each model",
                      section_reader::describe_found(*node)));
    for (const auto& element : *tables) {
      const auto& limit = *element.as_table();
      const auto at = fmt::format("{}.limit[{}]", path, t.limits.size());
      auto& record = t.limits.emplace_back();
      record.where = reader_.at(limit.source());
      reader_.read(limit, at, "[[tenant.limit]]", bind(record));
    }
  }

  /// What is not set depends on what is guaranteed, and on how many gateways there are.
  void complete_limits() {
    const auto gateways = static_cast<double>(cluster_.gateways.size());
    for (std::size_t i = 0; i < cluster_.tenants.size(); ++i)
      for (std::size_t k = 0; k < cluster_.tenants[i].limits.size(); ++k) {
        auto& l = cluster_.tenants[i].limits[k];
        const auto is_set = [&](const char* key) {
          return cluster_.origins.contains(fmt::format("tenant[{}].limit[{}].{}", i, k, key));
        };
        if (!is_set("burst_mu")) l.burst_mu = l.guaranteed_mu_per_minute * default_burst;
        if (!is_set("isolated_mu_per_minute") && gateways > 1)
          l.isolated_mu_per_minute = l.guaranteed_mu_per_minute *
                                     std::min(default_isolated, default_all_isolated / gateways);
      }
  }

  /// Also where the file doesn't name it: the default is a place beside the file.
  void certificates_of(const toml::table& root) {
    auto& s = cluster_.section;
    const auto* table = root["cluster"].as_table();
    if (table != nullptr && table->contains("certificates"))
      return expand(*table, "certificates", s.certificates_written, s.certificates);
    if (auto path = expand_path(s.certificates_written, folder_, env_)) s.certificates = *path;
  }

  void expand(const toml::table& table, const char* key, const std::string& written,
              std::string& out) {
    const auto* node = table.get(key);
    if (node == nullptr || written.empty()) return;
    auto path = expand_path(written, folder_, env_);
    if (path)
      out = *std::move(path);
    else
      reader_.fail(reader_.at(node->source()), fmt::format("`{}`: {}", key, path.error().message));
  }

  load_result finish() {
    load_result result;
    if (problems_.empty()) {
      set_digests(cluster_);
      result.value = std::move(cluster_);
      return result;
    }
    std::stable_sort(problems_.begin(), problems_.end(), [](const problem& a, const problem& b) {
      return std::tie(a.where.line, a.where.column) < std::tie(b.where.line, b.where.column);
    });
    if (problems_.size() > problems_max) {
      const auto more = problems_.size() - problems_max;
      problems_.resize(problems_max);
      problems_.push_back({{filename_, 0, 0}, fmt::format("and {} more problems", more)});
    }
    result.problems = std::move(problems_);
    return result;
  }

  std::string filename_;
  const environment& env_;
  std::string folder_;
  cluster cluster_;
  std::vector<problem> problems_;
  section_reader reader_;
};

load_result one_problem(const std::string& file, std::string message) {
  load_result result;
  result.problems.push_back({{file, 0, 0}, std::move(message)});
  return result;
}

}  // namespace

environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>{value};
  };
}

load_result parse(std::string_view text, const std::string& filename, const environment& env) {
  if (text.size() > cluster_file_bytes_max)
    return one_problem(filename, fmt::format("longer than {}, which no cluster file is",
                                             format_bytes(cluster_file_bytes_max)));
  if (const auto place = find_excessive_nesting(text)) {
    load_result result;
    result.problems.push_back(
        {{filename, place->line, place->column},
         fmt::format("nested deeper than {} levels, which no cluster file is", nesting_max)});
    return result;
  }
  return file_parser{filename, env}.run(text);
}

load_result load(const std::string& path, const environment& env) {
  std::error_code failure;
  if (std::filesystem::is_directory(path, failure))
    return one_problem(path, "is a folder, not a cluster file");
  errno = 0;
  std::ifstream in{path, std::ios::binary};
  if (!in) return one_problem(path, fmt::format("cannot be opened: {}", std::strerror(errno)));
  // One byte more than allowed is enough to know that it is too long.
  std::string text(cluster_file_bytes_max + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) return one_problem(path, "cannot be read");
  text.resize(static_cast<std::size_t>(in.gcount()));
  return parse(text, path, env);
}

}  // namespace troupe::config
