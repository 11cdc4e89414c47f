#include "config/calibration.hpp"

#include "config/effective.hpp"
#include "config/reload.hpp"
#include "support.hpp"

#include <catch2/catch.hpp>

#include <unistd.h>

#include <filesystem>
#include <fstream>

using namespace troupe::config;
using namespace troupe::config::testing;

// How this can fail: a value that makes no sense is taken, a fault is reported without its place, a
// file that was written cannot be read, one for another model or other hardware is taken in
// silence.

namespace {

calibration some() {
  calibration c;
  c.model = "m";
  c.device_class = "AMD EPYC 9R14, 2 threads";
  c.alpha = 2.25e-3;
  c.alpha2 = 1.1e-7;
  c.beta = 1.0 / 3;
  c.beta_step = 1e-2;
  c.gamma = 3e-300;
  c.usual_batch = 3.5;
  c.mu_per_minute = 12.75;
  c.median_error = 0.0625;
  c.p90_error = 0.125;
  c.bias = -0.01;
  c.usual_median_error = 0.25;
  c.usual_p90_error = 0.5;
  c.usual_bias = 0.02;
  return c;
}

std::vector<std::string> problems_of_costs(const std::string& text) {
  std::vector<std::string> out;
  for (const auto& p : parse_calibration(text, "c.toml").problems) out.push_back(to_string(p));
  return out;
}

std::string with(const std::string& line) {
  return "[costs]\nmodel = 'm'\ndevice_class = 'x'\nalpha = 0.002\nbeta = 0.01\n" + line + "\n";
}

struct folder {
  std::filesystem::path path = std::filesystem::temp_directory_path() /
                               ("troupe-costs-" + std::to_string(::getpid()));
  folder() { std::filesystem::create_directories(path); }
  ~folder() { std::filesystem::remove_all(path); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream{path / name} << text;
  }
  load_result cluster(const std::string& costs) const {
    sample s;
    s.pools = "[[pool]]\nname = 'p'\nmodel = 'm'\nhosts = ['h0']\n" + costs;
    return parse(s.text(), (path / "cluster.toml").string(), fake_environment());
  }
};

}  // namespace

TEST_CASE("costs: what is written is read, to the last digit", "[config]") {
  const auto back = parse_calibration(print_calibration(some()), "c.toml");
  for (const auto& p : back.problems) UNSCOPED_INFO(to_string(p));
  REQUIRE(back);
  CHECK(*back.value == some());
  CHECK(parse_calibration(with(""), "c.toml").value->usual_batch == 1);
}

TEST_CASE("costs: whatever a fit comes to can be read", "[config]") {
  auto c = some();
  SECTION("all of the prompt grows with what is before") { c.alpha = 0; }
  SECTION("all of the answer grows with the context") { c.beta = c.beta_step = 0; }
  const auto back = parse_calibration(print_calibration(c), "c.toml");
  for (const auto& p : back.problems) UNSCOPED_INFO(to_string(p));
  REQUIRE(back);
  CHECK(*back.value == c);
}

TEST_CASE("costs: what cannot be is an error with its place", "[config]") {
  const std::pair<std::string, const char*> wrong[] = {
      {with("gamma = -1e-9"), "c.toml:6:9: `gamma` is the number -1e-09; expected a number from 0"},
      {with("gamma = nan"), "c.toml:6:9: `gamma` is the number nan"},
      {with("alpha2 = inf"), "c.toml:6:10: `alpha2` is the number inf"},
      {with("usual_batch = 0.5"), "c.toml:6:15: `usual_batch` is the number 0.5; expected"},
      {with("mu_per_minute = -1"), "c.toml:6:17: `mu_per_minute` is the integer -1"},
      {with("alhpa2 = 0"), "c.toml:6:1: [costs] has no key \"alhpa2\"; did you mean `alpha2`?"},
      {with("image = '1'"), "c.toml:6:9: `image` is the string \"1\""},
      {"[costs]\nmodel = 'm'\ndevice_class = 'x'\nalpha = 0\nbeta = 1\n",
       "c.toml:4:9: `alpha` and `alpha2` are 0"},
      {"[costs]\nmodel = 'm'\ndevice_class = ''\nalpha = 1\nbeta = 1\n",
       "c.toml:3:16: `device_class` is empty"},
      {"[costs]\nmodel = 'm'\ndevice_class = 'x'\nalpha = 1\nbeta = 0\n", "c.toml:5:8: `beta`, "},
      {"[costs]\nmodel = 'm'\ndevice_class = 'x'\nalpha = 1\n", "c.toml:1:1: `beta`, "},
      {"[costs]\nmodel = 'm'\ndevice_class = 'x'\nbeta = 1\n", "[costs] needs `alpha`"},
      {"[costs]\nmodel = 'm'\nalpha = 1\nbeta = 1\n", "[costs] needs `device_class`"},
      {"", "c.toml: no [costs]"},
      {with("") + "[other]\n", "there is no section or key `other`"},
      {"[costs\n", "not TOML"},
      {std::string(calibration_bytes_max + 1, '#'), "longer than 64KiB"},
  };
  for (const auto& [text, expected] : wrong) {
    CAPTURE(text.substr(0, 200), expected);
    CHECK_THAT(joined(problems_of_costs(text)), Catch::Contains(expected));
  }
  // Of the prompt's cost and of the answer's not all parts may be missing.
  CHECK(parse_calibration("[costs]\nmodel = 'm'\ndevice_class = 'x'\nalpha = 1\nbeta_step = 1\n",
                          "c.toml"));
}

TEST_CASE("costs: a pool names its file, relative to the cluster file", "[config]") {
  folder f;
  f.write("c.toml", print_calibration(some()));
  auto c = f.cluster("costs = 'c.toml'\n");
  REQUIRE(c);
  CHECK(c.value->pools[0].costs == (f.path / "c.toml").string());
  auto read = read_costs(*c.value);
  CHECK(read.problems.empty());
  REQUIRE(read.of_pool.count("p") == 1);
  CHECK(read.of_pool.at("p") == some());
  CHECK(read_costs(*f.cluster("").value).of_pool.empty());

  const std::pair<const char*, std::string> wrong[] = {
      {"costs = 'none.toml'\n", "none.toml: cannot be opened: No such file or directory"},
      {"costs = '.'\n", "is a folder"},
      {"costs = 'bad.toml'\n", "bad.toml:4:9: `alpha` is the integer -1"},
      {"costs = 'other.toml'\n", "cluster.toml:14:9: " + (f.path / "other.toml").string() +
                                     " was calibrated for model \"n\", and pool \"p\" serves"}};
  f.write("bad.toml", "[costs]\nmodel = 'm'\ndevice_class = 'x'\nalpha = -1\nbeta = 1\n");
  auto other = some();
  other.model = "n";
  f.write("other.toml", print_calibration(other));
  for (const auto& [line, expected] : wrong) {
    CAPTURE(line, expected);
    read = read_costs(*f.cluster(line).value);
    std::string all;
    for (const auto& p : read.problems) all += to_string(p) + "\n";
    CHECK_THAT(all, Catch::Contains(expected));
    CHECK_THAT(all, Catch::Contains("cluster.toml:14:9: "));  // which pool
    CHECK(read.of_pool.empty());
  }
}

TEST_CASE("costs: what the file says belongs to the configuration's digest", "[config]") {
  folder f;
  f.write("c.toml", print_calibration(some()));
  const auto running = f.cluster("costs = 'c.toml'\n");
  CHECK(f.cluster("costs = 'c.toml'\n").value->digest == running.value->digest);
  CHECK(sections_for_restart(*running.value, *running.value).empty());
  auto other = some();
  other.alpha *= 2;
  f.write("c.toml", print_calibration(other));
  const auto next = f.cluster("costs = 'c.toml'\n");
  CHECK(next.value->digest != running.value->digest);
  CHECK(next.value->section_digests.at("costs") != running.value->section_digests.at("costs"));
  CHECK(sections_for_restart(*running.value, *next.value) == std::vector<std::string>{"costs"});
  CHECK_FALSE(f.cluster("").value->section_digests.contains("costs"));
}

TEST_CASE("costs: those of other hardware are refused, unless the cluster file says so",
          "[config]") {
  folder f;
  const auto c = f.cluster("costs = 'c.toml'\n");
  CHECK(wrong_hardware(*c.value, c.value->pools[0], some(), some().device_class).empty());
  CHECK_THAT(wrong_hardware(*c.value, c.value->pools[0], some(), "AMD EPYC 9R14, 4 threads"),
             Catch::Contains("cluster.toml:14:9: ") && Catch::Contains("2 threads\"") &&
                 Catch::Contains("4 threads\"") &&
                 Catch::Contains("costs_of_other_hardware = true"));
  const auto told = f.cluster("costs = 'c.toml'\ncosts_of_other_hardware = true\n");
  REQUIRE(told);
  CHECK(wrong_hardware(*told.value, told.value->pools[0], some(), "anything").empty());
  const auto alone = f.cluster("costs_of_other_hardware = true\n");
  REQUIRE(alone.problems.size() == 1);
  CHECK_THAT(alone.problems[0].message, Catch::Contains("`costs_of_other_hardware` has no effect"));
}
