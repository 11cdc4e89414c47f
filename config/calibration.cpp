#include "config/calibration.hpp"

#include "config/effective.hpp"
#include "config/nesting.hpp"
#include "config/schema.hpp"
#include "config/section_reader.hpp"
#include "config/values.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

namespace troupe::config {

namespace {

calibration_result one_problem(const std::string& file, std::string message) {
  calibration_result result;
  result.problems.push_back({{file, 0, 0}, std::move(message)});
  return result;
}

/// Where a pool names its file.
location place_of(const cluster& c, const pool& p, const char* key) {
  const auto at = c.origins.find(fmt::format("pool[{}].{}", &p - c.pools.data(), key));
  return at == c.origins.end() ? p.where : at->second;
}

class file_parser {
 public:
  explicit file_parser(const std::string& filename)
      : filename_(filename), reader_(filename, problems_, origins_) {
    value_.file = filename;
  }

  calibration_result run(std::string_view text) {
    try {
      read(toml::parse(text, filename_));
    } catch (const toml::parse_error& e) {
      reader_.fail(reader_.at(e.source()), fmt::format("not TOML: {}", e.description()));
    }
    calibration_result result;
    if (problems_.empty())
      result.value = std::move(value_);
    else
      result.problems = std::move(problems_);
    return result;
  }

 private:
  void read(const toml::table& root) {
    const auto* costs = root["costs"].as_table();
    for (const auto& [key, node] : root)
      if (key.str() != "costs")
        reader_.fail(reader_.at(key.source()),
                     fmt::format("there is no section or key `{}`; all stands in [costs]",
                                 std::string{key.str()}.substr(0, name_chars_max)));
    if (costs == nullptr)
      return reader_.fail({filename_, 0, 0},
                          "no [costs]: it is no file of `troupe bench calibrate`");
    value_.where = reader_.at(costs->source());
    reader_.read(*costs, "costs", "[costs]", bind(value_));
    if (!problems_.empty()) return;
    if (value_.device_class.empty()) fail("device_class", "`device_class` is empty");
    // A fit may put all of it into one of them.
    if (value_.alpha + value_.alpha2 <= 0)
      fail("alpha", "`alpha` and `alpha2` are 0, but computing a prompt takes time");
    if (value_.beta + value_.beta_step + value_.gamma <= 0)
      fail("beta", "`beta`, `beta_step` and `gamma` are 0, but sampling a token takes time");
  }

  void fail(const char* key, const char* message) {
    const auto at = origins_.find(std::string{"costs."} + key);
    reader_.fail(at == origins_.end() ? value_.where : at->second, message);
  }

  const std::string& filename_;
  calibration value_;
  std::map<std::string, location> origins_;
  std::vector<problem> problems_;
  section_reader reader_;
};

}  // namespace

calibration_result parse_calibration(std::string_view text, const std::string& filename) {
  if (text.size() > calibration_bytes_max)
    return one_problem(filename, fmt::format("longer than {}, which no calibration file is",
                                             format_bytes(calibration_bytes_max)));
  if (const auto place = find_excessive_nesting(text)) {
    calibration_result result;
    result.problems.push_back(
        {{filename, place->line, place->column},
         fmt::format("nested deeper than {} levels, which no calibration file is", nesting_max)});
    return result;
  }
  return file_parser{filename}.run(text);
}

calibration_result load_calibration(const std::string& path) {
  std::error_code failure;
  if (std::filesystem::is_directory(path, failure))
    return one_problem(path, "is a folder, not a calibration file");
  errno = 0;
  std::ifstream in{path, std::ios::binary};
  if (!in)
    return one_problem(path, fmt::format("cannot be opened: {}; `troupe bench calibrate` makes it",
                                         std::strerror(errno)));
  std::string text(calibration_bytes_max + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad()) return one_problem(path, "cannot be read");
  text.resize(static_cast<std::size_t>(in.gcount()));
  return parse_calibration(text, path);
}

std::string print_calibration(const calibration& c) {
  return "# By `troupe bench calibrate`. A pool of the cluster file names it: costs = \"...\"\n" +
         print_costs(c);
}

pool_costs read_costs(const cluster& c) {
  pool_costs all;
  std::map<std::string, calibration_result> files;
  for (const auto& p : c.pools) {
    if (p.costs.empty()) continue;
    auto [file, fresh] = files.try_emplace(p.costs);
    if (fresh) {
      file->second = load_calibration(p.costs);
      for (const auto& x : file->second.problems) all.problems.push_back(x);
    }
    if (!file->second) {
      all.problems.push_back(
          {place_of(c, p, "costs"), fmt::format("`costs` of pool \"{}\" cannot be taken", p.name)});
      continue;
    }
    const auto& costs = *file->second.value;
    if (costs.model != p.model) {
      all.problems.push_back(
          {place_of(c, p, "costs"),
           fmt::format("{} was calibrated for model \"{}\", and pool \"{}\" serves \"{}\"; where "
                       "both are the same, change `model` in the file",
                       p.costs, costs.model, p.name, p.model)});
      continue;
    }
    all.of_pool.emplace(p.name, costs);
  }
  return all;
}

std::string wrong_hardware(const cluster& c, const pool& p, const calibration& costs,
                           const std::string& device_class) {
  if (p.costs_of_other_hardware || costs.device_class == device_class) return {};
  return fmt::format("{}: {} was calibrated on \"{}\", but an engine of pool \"{}\" computes on "
                     "\"{}\"; calibrate there with `troupe bench calibrate`, leave `costs` out, or "
                     "set costs_of_other_hardware = true",
                     to_string(place_of(c, p, "costs")), p.costs, costs.device_class, p.name,
                     device_class);
}

}  // namespace troupe::config
