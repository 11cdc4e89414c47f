#include "support.hpp"

#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>

#include <unistd.h>

using namespace troupe::config;
using namespace troupe::config::testing;
using namespace std::chrono_literals;

TEST_CASE("a whole file", "[config]") {
  sample s;
  s.cluster = "[cluster]\nid = 'test'\ngeneration = 7\ninsecure_links = true\n";
  s.hosts = "[[host]]\nname = 'h0'\naddress = '10.0.0.1'\nport = 7100\nregion = 'eu'\nzone = "
            "'z'\nrack = 'r'\n"
            "[[host]]\nname = 'h1'\naddress = '10.0.0.2'\nport = 7100\n";
  s.models =
      "[[model]]\nname = 'm'\npath = 'm.gguf'\nchat_template = 'gemma'\ncontext_tokens = 4096\n";
  s.pools =
      "[[pool]]\nname = 'p'\nmodel = 'm'\nrole = 'prefill'\nhosts = ['h0', 'h1']\nengines_per_host "
      "= 2\nslots = 4\n"
      "kv_tokens = 8192\nstep_tokens = 256\ncached_prefixes = 3\nthreads = 2\ngpu_layers = 1\n"
      "[[pool]]\nname = 'd'\nmodel = 'm'\nrole = 'decode'\nhosts = ['h1']\nengine = 'simulated'\n"
      "[pool.simulation]\nprefill_tokens_per_second = 1000\ndecode_step_us = 2.5\nfault = "
      "'hang'\nfault_probability_per_step = 0.5\nseed = 9\n";
  s.gateways =
      "[[gateway]]\nhost = 'h0'\naddress = '0.0.0.0'\nport = 8080\ncertificate = 'x/h0.pem'\nkey = "
      "'/k/h0.key'\n";
  s.routers = "[[router]]\nhost = 'h1'\ndecode_prefills_tokens_max = 10\n";
  s.rest = "[limits]\nprompt_bytes_max = '1MiB'\nidle_timeout = '2m'\nheader_bytes_max = "
           "4096\n[health]\nlease = '5s'\n"
           "[transfer]\npiece_bytes_max = '1MiB'\ntls = 'tcp'\n";
  const auto result = parse_text(s.text());
  for (const auto& p : result.problems) UNSCOPED_INFO(to_string(p));
  REQUIRE(result);
  const auto& c = *result.value;
  CHECK(c.file == "/etc/troupe/c.toml");
  CHECK(c.section.id == "test");
  CHECK(c.section.insecure_links);
  CHECK(c.section.certificates == "/etc/troupe/certificates");
  CHECK(c.gateways.at(0).certificate == "/etc/troupe/x/h0.pem");
  CHECK(c.gateways.at(0).key == "/k/h0.key");
  CHECK(c.generation == 7);
  REQUIRE(c.hosts.size() == 2);
  CHECK(c.hosts[0].address == "10.0.0.1");
  CHECK(c.hosts[0].port == 7100);
  CHECK(c.hosts[0].place == troupe::topology::place{"eu", "z", "r", "h0"});
  CHECK(c.hosts[1].place == troupe::topology::place{"", "", "", "h1"});
  CHECK(c.models.at(0).path == "/etc/troupe/m.gguf");
  CHECK(c.models.at(0).path_written == "m.gguf");
  CHECK(c.models.at(0).chat_template == "gemma");
  CHECK(c.models.at(0).context_tokens == 4096);
  REQUIRE(c.pools.size() == 2);
  CHECK(c.pools[0].role == pool_role::prefill);
  CHECK(c.pools[0].engine == engine_kind::llama);
  CHECK(c.pools[0].hosts == std::vector<std::string>{"h0", "h1"});
  CHECK(c.pools[0].engines_per_host == 2);
  CHECK(c.pools[0].step_tokens == 256);
  CHECK(c.pools[0].prefix_reuse);
  CHECK(c.pools[1].role == pool_role::decode);
  CHECK(c.pools[1].engine == engine_kind::simulated);
  CHECK(c.pools[1].sim.prefill_tokens_per_second == 1000);
  CHECK(c.pools[1].sim.decode_step_us == 2.5);
  CHECK(c.pools[1].sim.fault == "hang");
  CHECK(c.pools[1].sim.seed == 9);
  CHECK(c.gateways.at(0).address == "0.0.0.0");
  CHECK(c.routers.at(0).decode_prefills_tokens_max == 10);
  CHECK(c.limits.prompt_bytes_max == 1U << 20U);
  CHECK(c.limits.header_bytes_max == 4096);
  CHECK(c.limits.idle_timeout == 2min);
  CHECK(c.limits.body_timeout == 60s);
  CHECK(c.health.lease == 5s);
  CHECK(c.transfer.tls == "tcp");
  CHECK(c.transfer.kind == "ucx");

  CHECK(c.origins.at("pool[0].slots").line == 27);
  CHECK(c.origins.at("pool[1].simulation.seed").column == 8);
  CHECK(c.origins.count("limits.body_timeout") == 0);

  const auto on_h1 = engines_on(c, "h1");
  REQUIRE(on_h1.size() == 3);
  CHECK(on_h1[0].name == "prefill/p/h1.0");
  CHECK(on_h1[1].name == "prefill/p/h1.1");
  CHECK(on_h1[1].index == 1);
  CHECK(on_h1[2].name == "decode/d/h1.0");
  CHECK(c.find_host("h1") == &c.hosts[1]);
  CHECK(c.find_host("h9") == nullptr);
  CHECK(c.find_pool("d") == &c.pools[1]);
  CHECK(c.find_model("m") == &c.models[0]);
}

TEST_CASE("values that do not fit are named with what was found and what is expected", "[config]") {
  struct row {
    const char* section;
    const char* line;
    const char* expected;
  };
  const row rows[] = {
      {"limits", "header_timeout = 10",
       "`header_timeout` is the integer 10; expected a duration such as \"500ms\", \"10s\" or "
       "\"2m\", from 10ms to 1h"},
      {"limits", "header_timeout = '10'", "is the string \"10\"; expected a duration"},
      {"limits", "header_timeout = '1ms'", "expected a duration"},
      {"limits", "header_timeout = '2h'", "expected a duration"},
      {"limits", "header_timeout = 07:32:00", "is a date or time; expected a duration"},
      {"limits", "headers_max = '5'",
       "`headers_max` is the string \"5\"; expected an integer from 4 to 10000"},
      {"limits", "headers_max = 3", "is the integer 3; expected an integer from 4"},
      {"limits", "headers_max = 10001", "expected an integer"},
      {"limits", "prompt_bytes_max = '65MiB'", "to 64MiB"},
      {"limits", "headers_max = 5.0", "is the number 5"},
      {"limits", "headers_max = -9223372036854775808", "expected an integer"},
      {"limits", "headers_max = true", "`headers_max` is true; expected an integer"},
      {"limits", "headers_max = [5]", "is an array with the integer 5; expected an integer"},
      {"limits", "headers_max = {a = 1}", "is a table; expected an integer"},
      {"limits", "header_bytes_max = '1TiB'",
       "expected a size such as \"64MiB\" or an integer of bytes, from 1KiB to 1MiB"},
      {"limits", "header_bytes_max = 100", "expected a size"},
      {"transfer", "kind = 'ucs'", "expected one of \"ucx\", \"host\"; did you mean \"ucx\"?"},
      {"transfer", "kind = 3", "expected one of"},
      {"transfer", "tls = 3", "expected a string"},
      {"limits", "heder_timeout = '10s'",
       "[limits] has no key \"heder_timeout\"; did you mean `header_timeout`?"},
      {"limits", "colour = 'red'", "[limits] has no key \"colour\""},
      {"healht", "lease = '10s'", "there is no section or key `healht`; did you mean `health`?"},
  };
  for (const auto& r : rows) {
    INFO(r.line);
    sample s;
    const auto problems = problems_of("[" + std::string{r.section} + "]\n" + r.line + "\n" +
                                      s.text());
    INFO(joined(problems));
    REQUIRE(problems.size() >= 1);
    CHECK(problems[0].find(r.expected) != std::string::npos);
  }
}

TEST_CASE("a problem stands where the value or key stands", "[config]") {
  sample s;
  const auto at = [&](const std::string& first_lines) {
    return problems_of(first_lines + s.text()).at(0);
  };
  CHECK(at("[limits]\n  headers_max =   3\n").find("2:19: ") == 0);
  CHECK(at("[limits]\n  headers_mix = 3\n").find("2:3: ") == 0);
  CHECK(at("limits.header_timeout = 3\n").find("1:25: ") == 0);
  CHECK(at("limits = 3\n")
            .find("1:10: `limits` is the integer 3; it is a section of its own and stands once: "
                  "[limits]") == 0);
}

TEST_CASE("all problems at once, in the order of the file", "[config]") {
  sample s;
  s.cluster = "[cluster]\nid = 5\ngenerations = 2\n";
  s.hosts = "[[host]]\nname = 'h0'\naddress = 'localhost'\nport = 0\n";
  s.pools =
      "[[pool]]\nname = 'p'\nmodel = 'M'\nrole = 'prefil'\nhosts = ['h0', 'h9']\nslots = '8'\n";
  s.gateways = "[[gateway]]\nhost = 'ho'\nport = 8080\n";
  s.routers = "";
  const auto problems = problems_of(s.text());
  INFO(joined(problems));
  const char* expected[] = {
      "no [[router]]: nobody decides on routes",
      "2:6: `id` is the integer 5; expected a name",
      "3:1: [cluster] has no key \"generations\"; did you mean `generation`?",
      "6:11: `address` is the string \"localhost\"; expected an IP address",
      "7:8: `port` is the integer 0; expected an integer from 1 to 65535",
      "13:9: there is no model \"M\"; did you mean \"m\"?",
      ("14:8: `role` is the string \"prefil\"; expected one of \"prefill\", \"decode\", \"both\"; "
       "did you mean \"prefill\"?"),
      "15:9: there is no host \"h9\"; did you mean \"h0\"?",
      "16:9: `slots` is the string \"8\"; expected an integer from 1 to 1024",
      "18:8: there is no host \"ho\"; did you mean \"h0\"?",
  };
  for (const auto* line : expected) {
    INFO(line);
    CHECK(std::any_of(problems.begin(), problems.end(),
                      [&](const std::string& p) { return p.find(line) == 0; }));
  }
  const auto order = parse_text(s.text()).problems;
  CHECK(std::is_sorted(order.begin(), order.end(), [](const problem& a, const problem& b) {
    return a.where.line < b.where.line;
  }));
}

TEST_CASE("required keys", "[config]") {
  sample s;
  s.hosts = "[[host]]\n";
  s.models = "[[model]]\npath = 'x'\n";
  const auto all = joined(problems_of(s.text()));
  CHECK(all.find("3:1: [[host]] needs `name`") != std::string::npos);
  CHECK(all.find("3:1: [[host]] needs `address`: an IP address") != std::string::npos);
  CHECK(all.find("3:1: [[host]] needs `port`: an integer from 1 to 65535") != std::string::npos);
  CHECK(all.find("4:1: [[model]] needs `name`") != std::string::npos);
}

TEST_CASE("sections of the wrong shape", "[config]") {
  sample s;
  s.hosts = "[host]\nname = 'h0'\n";
  CHECK(joined(problems_of(s.text())).find("write [[host]], once for each host") !=
        std::string::npos);
  s = {};
  s.rest = "[[limits]]\n";
  CHECK(joined(problems_of(s.text())).find("stands once: [limits]") != std::string::npos);
  s = {};
  s.pools += "simulation = 3\nengine = 'simulated'\n";
  CHECK(joined(problems_of(s.text())).find("it is a section below its pool: [pool.simulation]") !=
        std::string::npos);
  s = {};
  s.hosts = "";
  CHECK(joined(problems_of("host = ['h0']\n" + s.text())).find("write [[host]]") !=
        std::string::npos);
}

TEST_CASE("files that are no cluster file", "[config]") {
  CHECK(joined(problems_of("")).find("no [cluster]") != std::string::npos);
  const auto broken = problems_of("[cluster]\nid = \n");
  REQUIRE(broken.size() == 1);
  CHECK(broken[0].find("2:6: not TOML: ") == 0);
  const auto twice = problems_of("[cluster]\nid = 'a'\nid = 'b'\n");
  REQUIRE(twice.size() == 1);
  CHECK(twice[0].find("3:") == 0);
  const auto binary = problems_of("[cluster]\nid = '\xff\xfe'\n");
  REQUIRE(binary.size() == 1);
  CHECK(binary[0].find("2:6: not TOML: ") == 0);
  CHECK(binary[0].find("utf-8") != std::string::npos);
  CHECK(problems_of(std::string(cluster_file_bytes_max + 1, ' ')).at(0).find("longer than 1MiB") ==
        0);
  CHECK(problems_of(std::string(1000, '\0')).size() == 1);
}

TEST_CASE("deep nesting is refused, not followed", "[config]") {
  std::string dotted = "a";
  for (int i = 0; i < 200'000; ++i) dotted += ".a";
  CHECK_FALSE(problems_of(dotted + " = 1\n").empty());
  CHECK_FALSE(problems_of("[" + dotted + "]\nb = 1\n").empty());
  CHECK_FALSE(problems_of("x = " + std::string(100'000, '[')).empty());
  std::string inline_tables = "x = ";
  for (int i = 0; i < 50'000; ++i) inline_tables += "{a=";
  CHECK_FALSE(problems_of(inline_tables).empty());
  std::string both = "x = [";
  for (int i = 0; i < 300; ++i) both += "\n{a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a=[";
  CHECK(problems_of(both).at(0).find("nested deeper") != std::string::npos);
}

TEST_CASE("many problems are counted, not all listed", "[config]") {
  std::string text;
  for (int i = 0; i < 5'000; ++i) text += "key" + std::to_string(i) + " = 1\n";
  const auto problems = problems_of(text);
  REQUIRE(problems.size() == problems_max + 1);
  CHECK(problems.back().find("and 49") == 0);
}

TEST_CASE("long and strange text is cut in messages", "[config]") {
  sample s;
  const auto problems = problems_of("[limits]\nheaders_max = '" + std::string(10'000, 'x') +
                                    "'\nheader_timeout = \"\\u001b[31m\"\n" + s.text());
  REQUIRE(problems.size() == 2);
  CHECK(problems[0].size() < 200);
  CHECK(problems[1].find('\x1b') == std::string::npos);
}

TEST_CASE("load tells why a file cannot be read", "[config]") {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("troupe-config-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto missing = load((folder / "none.toml").string());
  REQUIRE(missing.problems.size() == 1);
  CHECK(to_string(missing.problems[0]) ==
        (folder / "none.toml").string() + ": cannot be opened: No such file or directory");
  CHECK(load(folder.string()).problems.at(0).message == "is a folder, not a cluster file");

  const auto file = folder / "c.toml";
  std::ofstream{file} << sample{}.text();
  CHECK(load(file.string()));
  std::ofstream{file} << "[cluster]\nid = 'test'\nid2 = 1\n";
  const auto problems = load(file.string()).problems;
  CHECK(std::any_of(problems.begin(), problems.end(), [&](const problem& p) {
    return to_string(p).find(file.string() + ":3:1: [cluster] has no key") == 0;
  }));
  std::filesystem::remove_all(folder);
}

TEST_CASE("paths in models are expanded at their place", "[config]") {
  sample s;
  s.models = "[[model]]\nname = 'm'\npath = '~/m.gguf'\nchat_template_file = 'm.jinja'\n";
  const auto result = parse_text(s.text());
  REQUIRE(result);
  CHECK(result.value->models[0].path == "/home/me/m.gguf");
  CHECK(result.value->models[0].chat_template_file == "/etc/troupe/m.jinja");
  s.models = "[[model]]\nname = 'm'\npath = '${NO_SUCH}/m.gguf'\n";
  CHECK(joined(problems_of(s.text()))
            .find("9:8: `path`: the environment variable NO_SUCH is not set") == 0);
}

TEST_CASE("[control] is one section, whose mistakes have their places", "[config]") {
  // How it can fail: a setting that is read and goes nowhere, or one that is passed over.
  sample s;
  s.routers += s.routers;  // lines 17 to 20
  s.rest = "[control]\nhost = 'h0'\nstate = 'state/${NAME}.db'\n"
           "interval = '5s'\ntolerance = 0.2\nchurn_max = 0\n";
  const auto good = parse(s.text(), "/etc/troupe/c.toml", fake_environment({{"NAME", "c"}}));
  REQUIRE(good);
  REQUIRE(good.value->control);
  const auto& c = *good.value->control;
  CHECK(c.host == "h0");
  CHECK(c.state == "/etc/troupe/state/c.db");
  CHECK(c.interval == std::chrono::seconds{5});
  CHECK(c.tolerance == 0.2);
  CHECK(c.churn_max == 0);
  CHECK(to_string(c.where) == "/etc/troupe/c.toml:21:1");

  const auto first = [&](const std::string& rest) {
    s.rest = rest;
    const auto all = problems_of(s.text());
    return all.empty() ? std::string{} : all.front();
  };
  const std::string start = "[control]\nhost = 'h0'\nstate = 'c.db'\n";
  CHECK(first(start).empty());
  CHECK(first("[contrl]\n")
            .find("21:2: there is no section or key `contrl`; did you mean `control`?") == 0);
  CHECK(first("[[control]]\n")
            .find("`control` is an array of tables; it is a section of its own and stands once: "
                  "[control]") != std::string::npos);
  CHECK(first(start + "intervall = '1m'\n")
            .find("24:1: [control] has no key \"intervall\"; did you mean `interval`?") == 0);
  CHECK(first(start + "interval = '1ms'\n").find("24:12: `interval` is the string \"1ms\"; ") == 0);
  CHECK(first(start + "tolerance = 0\n").find("24:13: `tolerance` is the integer 0; ") == 0);
  CHECK(first(start + "churn_max = 1.1\n").find("24:13: `churn_max` is the number 1.1; ") == 0);
  CHECK(first("[control]\nhost = 'h0'\nstate = '${NOT_SET}'\n").find("23:9: `state`: ") == 0);
}
