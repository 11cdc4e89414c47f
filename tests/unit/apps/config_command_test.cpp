#include "apps/config_command.hpp"

#include <catch2/catch.hpp>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

using namespace troupe::apps;

namespace {

struct answer {
  int exit_code;
  std::string out;
  std::string err;
};

template <class Function>
answer call(Function f, const std::string& file) {
  std::ostringstream out, err;
  const int exit_code = f(file, out, err);
  return {exit_code, out.str(), err.str()};
}

struct temporary_file {
  std::string path;

  explicit temporary_file(const std::string& text)
      : path((std::filesystem::temp_directory_path() /
              ("troupe-command-" + std::to_string(::getpid()) + ".toml"))
                 .string()) {
    std::ofstream{path} << text;
  }
  ~temporary_file() { std::filesystem::remove(path); }
};

}  // namespace

TEST_CASE("check sums up a good file", "[apps]") {
  const auto a = call(check_config, TROUPE_EXAMPLES_DIR "/quickstart.toml");
  CHECK(a.exit_code == 0);
  CHECK(a.out.find("ok: cluster \"quickstart\" with 2 hosts, 1 model, 2 engines in 2 pools, 1 "
                   "gateway, 1 router; digest ") != std::string::npos);
  CHECK(a.err.empty());
  const auto b = call(check_config, TROUPE_EXAMPLES_DIR "/shards.toml");
  CHECK(b.out.find("2 gateways, 3 routers, control on h0; digest ") != std::string::npos);
}

TEST_CASE("check lists all problems of a bad file, each with its place", "[apps]") {
  const temporary_file file{"[cluster]\nidd = 'x'\n[limits]\nheaders_max = '3'\n"};
  const auto a = call(check_config, file.path);
  CHECK(a.exit_code == 1);
  CHECK(a.out.empty());
  CHECK(a.err.find(file.path + ":2:1: [cluster] has no key \"idd\"; did you mean `id`?\n") !=
        std::string::npos);
  CHECK(a.err.find(file.path + ":4:15: `headers_max` is the string \"3\"") != std::string::npos);
  CHECK(a.err.find(file.path + ": no [[host]]") != std::string::npos);
  CHECK(a.err.find("problems\n") != std::string::npos);
  CHECK(call(show_config, file.path).exit_code == 1);
}

TEST_CASE("show prints values with their origins", "[apps]") {
  const auto a = call(show_config, TROUPE_EXAMPLES_DIR "/quickstart.toml");
  CHECK(a.exit_code == 0);
  CHECK(a.out.find("# default\n") != std::string::npos);
  CHECK(a.out.find("quickstart.toml:") != std::string::npos);
  CHECK(a.err.empty());
}

TEST_CASE("the command line finds its way", "[apps]") {
  CLI::App app{"troupe"};
  int exit_code = -1;
  add_config_command(app, exit_code);
  app.parse("config check /no/such/file.toml");
  CHECK(exit_code == 1);
  CHECK_THROWS_AS(app.parse("config"), CLI::ParseError);
  CHECK_THROWS_AS(app.parse("config check"), CLI::ParseError);
  CHECK_THROWS_AS(app.parse("config check a b"), CLI::ParseError);
}
