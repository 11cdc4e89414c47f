#include "support.hpp"

#include "config/check.hpp"

#include <catch2/catch.hpp>

#include <functional>

using namespace troupe::config;
using namespace troupe::config::testing;

namespace {

const std::string split_pools =
    "[[pool]]\nname = 'p'\nmodel = 'm'\nrole = 'prefill'\nhosts = ['h0']\n"
    "[[pool]]\nname = 'd'\nmodel = 'm'\nrole = 'decode'\nhosts = ['h0']\n";
const std::string host_h1 = "[[host]]\nname = 'h1'\naddress = '127.0.0.2'\nport = 7100\n";
const std::string gateway_h1 = "[[gateway]]\nhost = 'h1'\nport = 8081\n";
const std::string simulated =
    "[[pool]]\nname = 'p'\nmodel = 'm'\nhosts = ['h0']\nengine = 'simulated'\n";

const std::string control_h0 = "[control]\nhost = 'h0'\nstate = 'control.db'\n";

std::string routers(std::size_t count) {
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += "[[router]]\nhost = 'h0'\n";
  return out;
}

struct row {
  const char* what;
  std::function<void(sample&)> change;
  std::vector<const char*> expected;  ///< part of each problem; none: the file is valid
};

}  // namespace

TEST_CASE("checks across values and sections", "[config]") {
  const row rows[] = {
      {"nothing wrong", [](sample&) {}, {}},
      {"prefill and decode", [](sample& s) { s.pools = split_pools; }, {}},

      {"no hosts",
       [](sample& s) { s.hosts = ""; },
       {"no [[host]]", "no host \"h0\"", "no host \"h0\"", "no host \"h0\""}},
      {"no models", [](sample& s) { s.models = ""; }, {"no [[model]]", "there is no model \"m\""}},
      {"no pools",
       [](sample& s) { s.pools = ""; },
       {"no [[pool]]", "model \"m\" is served by no pool"}},
      {"no gateways", [](sample& s) { s.gateways = ""; }, {"no [[gateway]]"}},
      {"no routers", [](sample& s) { s.routers = ""; }, {"no [[router]]"}},
      {"two routers of a host", [](sample& s) { s.routers += s.routers; }, {}},
      {"as many routers as there may be", [](sample& s) { s.routers = routers(64); }, {}},
      {"more routers than there may be",
       [](sample& s) { s.routers = routers(65); },
       {"65 routers; at most 64 are supported"}},
      {"a control host", [](sample& s) { s.routers += s.routers + control_h0; }, {}},
      {"a control host that runs nothing else",
       [](sample& s) {
         s.hosts += host_h1;
         s.routers += s.routers + "[control]\nhost = 'h1'\nstate = 's'\n";
       },
       {}},
      {"an unknown control host",
       [](sample& s) { s.routers += s.routers + "[control]\nhost = 'h1'\nstate = 's'\n"; },
       {"there is no host \"h1\"; did you mean \"h0\"?"}},
      {"a control host for one router",
       [](sample& s) { s.routers += control_h0; },
       {"[control] has no effect: there is one [[router]] only"}},
      {"a control host without a place for its state",
       [](sample& s) { s.routers += s.routers + "[control]\nhost = 'h0'\n"; },
       {"[control] needs `state`"}},
      {"a control host with an empty place for its state",
       [](sample& s) { s.routers += s.routers + "[control]\nhost = 'h0'\nstate = ''\n"; },
       {"`state` is empty; name a file on the control host"}},

      {"two hosts of a name",
       [](sample& s) { s.hosts += "[[host]]\nname = 'h0'\naddress = '127.0.0.2'\nport = 7100\n"; },
       {"two hosts \"h0\""}},
      {"two models of a name", [](sample& s) { s.models += s.models; }, {"two models \"m\""}},
      {"two pools of a name", [](sample& s) { s.pools += s.pools; }, {"two pools \"p\""}},

      {"a pool on an unknown host",
       [](sample& s) { s.pools = "[[pool]]\nname = 'p'\nmodel = 'm'\nhosts = ['h0', 'h1']\n"; },
       {"there is no host \"h1\"; did you mean \"h0\"?"}},
      {"a gateway on an unknown host",
       [](sample& s) { s.gateways = "[[gateway]]\nhost = 'h9'\nport = 1\n"; },
       {"there is no host \"h9\""}},
      {"two gateways of a host",
       [](sample& s) { s.gateways += "[[gateway]]\nhost = 'h0'\nport = 8081\n"; },
       {"host \"h0\" has a gateway already"}},
      {"a router on an unknown host",
       [](sample& s) { s.routers = "[[router]]\nhost = 'h9'\n"; },
       {"there is no host \"h9\""}},
      {"a pool of an unknown model",
       [](sample& s) { s.pools = "[[pool]]\nname = 'p'\nmodel = 'mm'\nhosts = ['h0']\n"; },
       {"model \"m\" is served by no pool", "there is no model \"mm\"; did you mean \"m\"?"}},
      {"a host twice in a pool",
       [](sample& s) { s.pools = "[[pool]]\nname = 'p'\nmodel = 'm'\nhosts = ['h0', 'h0']\n"; },
       {"\"h0\" stands twice"}},
      {"a pool without hosts",
       [](sample& s) { s.pools = "[[pool]]\nname = 'p'\nmodel = 'm'\nhosts = []\n"; },
       {"pool \"p\" has no hosts"}},

      {"prefill alone",
       [](sample& s) { s.pools += "role = 'prefill'\n"; },
       {"no pool with role \"decode\""}},
      {"decode alone",
       [](sample& s) { s.pools += "role = 'decode'\n"; },
       {"no pool with role \"prefill\""}},
      {"prefill beside both, without decode",
       [](sample& s) {
         s.pools += "[[pool]]\nname = 'q'\nmodel = 'm'\nrole = 'prefill'\nhosts = ['h0']\n";
       },
       {"no pool with role \"decode\""}},

      {"more sequences than an engine has",
       [](sample& s) {
         s.pools =
             "[[pool]]\nname = 'p'\nmodel = 'm'\nhosts = ['h0']\nslots = 200\ncached_prefixes "
             "= 100\n";
       },
       {"are together more than the 254 sequences of a llama engine"}},
      {"more sequences than a simulated engine has",
       [](sample& s) {
         s.pools +=
             "engine = 'simulated'\nslots = 1000\ncached_prefixes = 25\nstep_tokens = 1000\n";
       },
       {"are together more than the 1024 sequences of a simulated engine"}},
      {"as many as a simulated engine has",
       [](sample& s) {
         s.pools +=
             "engine = 'simulated'\nslots = 1000\ncached_prefixes = 24\nstep_tokens = 1000\n";
       },
       {}},
      {"a step too small for its slots",
       [](sample& s) { s.pools += "slots = 8\nstep_tokens = 7\n"; },
       {"step_tokens (7) is less than slots (8)"}},
      {"KV less than slots",
       [](sample& s) {
         s.pools += "slots = 32\nkv_tokens = 31\n";
         s.models += "context_tokens = 16\n";
       },
       {"kv_tokens (31) is less than slots (32)"}},
      {"a context longer than the KV",
       [](sample& s) { s.pools += "kv_tokens = 8191\n"; },
       {"kv_tokens (8191) is less than the context of model \"m\" (8192)"}},
      {"KV for few of many slots",
       [](sample& s) { s.pools += "slots = 16\nkv_tokens = 8192\n"; },
       {}},
      {"a default context longer than the default KV",
       [](sample& s) { s.models += "context_tokens = 20000\n"; },
       {"kv_tokens (16384)"}},

      {"CPUs that are dealt out to two engines",
       [](sample& s) { s.pools += "engines_per_host = 2\ncpus = ['0-3', '8', '10']\n"; },
       {}},
      {"CPUs that cannot be",
       [](sample& s) { s.pools += "engines_per_host = 2\ncpus = ['0-2']\n"; },
       {"3 CPUs cannot be dealt out evenly to 2 engines_per_host of pool \"p\""}},
      {"a CPU twice",
       [](sample& s) { s.pools += "cpus = ['0-3', '3']\n"; },
       {"CPU 3 stands twice in the cpus of pool \"p\""}},
      {"what is no CPU",
       [](sample& s) { s.pools += "cpus = ['3-0']\n"; },
       {"expected an array of CPUs such as [\"0-3\", \"8\"]"}},

      {"simulation of a real pool",
       [](sample& s) { s.pools += "[pool.simulation]\nseed = 1\n"; },
       {"[pool.simulation] has no effect"}},
      {"threads of a simulated pool",
       [](sample& s) { s.pools = simulated + "threads = 2\n"; },
       {"`threads` has no effect"}},
      {"GPU of a simulated pool",
       [](sample& s) { s.pools = simulated + "gpu_layers = 2\n"; },
       {"`gpu_layers` has no effect"}},
      {"a fault that never strikes",
       [](sample& s) { s.pools = simulated + "[pool.simulation]\nfault = 'hang'\n"; },
       {"`fault` has no effect"}},
      {"a fault that is switched off",
       [](sample& s) {
         s.pools = simulated +
                   "[pool.simulation]\nfault = 'hang'\nfault_probability_per_step = 0\n";
       },
       {}},
      {"no fault that could strike",
       [](sample& s) {
         s.pools = simulated + "[pool.simulation]\nfault_probability_per_step = 0.1\n";
       },
       {"`fault_probability_per_step` has no effect"}},
      {"a seed of nothing",
       [](sample& s) { s.pools = simulated + "[pool.simulation]\nseed = 3\n"; },
       {"`seed` has no effect"}},
      {"a simulated pool without a model file",
       [](sample& s) {
         s.pools = simulated;
         s.models = "[[model]]\nname = 'm'\n";
       },
       {}},
      {"a real pool without a model file",
       [](sample& s) { s.models = "[[model]]\nname = 'm'\n"; },
       {"model \"m\" has no `path`"}},
      {"cached prefixes without reuse",
       [](sample& s) { s.pools += "prefix_reuse = false\ncached_prefixes = 4\n"; },
       {"`cached_prefixes` has no effect"}},
      {"no reuse", [](sample& s) { s.pools += "prefix_reuse = false\n"; }, {}},
      {"a template without a model file",
       [](sample& s) {
         s.pools = simulated;
         s.models = "[[model]]\nname = 'm'\nchat_template = 'gemma'\n";
       },
       {"`chat_template` has no effect: the model has no `path`"}},
      {"two templates",
       [](sample& s) { s.models += "chat_template = 'gemma'\nchat_template_file = 'x.jinja'\n"; },
       {"contradict each other"}},

      {"a host without a part to play",
       [](sample& s) { s.hosts += host_h1; },
       {"host \"h1\" runs nothing"}},
      {"a host with a gateway only",
       [](sample& s) {
         s.hosts += host_h1;
         s.gateways += gateway_h1;
       },
       {}},
      {"too many engines on a host",
       [](sample& s) {
         s.pools += "engines_per_host = 64\n[[pool]]\nname = 'q'\nmodel = 'm'\nhosts = ['h0']\n";
       },
       {"would run 65 engines; at most 64"}},
      {"links between machines",
       [](sample& s) {
         s.hosts += "[[host]]\nname = 'h1'\naddress = '10.0.0.2'\nport = 7100\n";
         s.gateways += gateway_h1;
       },
       {}},
      {"plain links between machines",
       [](sample& s) {
         s.cluster += "insecure_links = true\n";
         s.hosts += "[[host]]\nname = 'h1'\naddress = '10.0.0.2'\nport = 7100\n";
         s.gateways += gateway_h1;
       },
       {}},
      {"one machine has no peers",
       [](sample& s) { s.hosts = "[[host]]\nname = 'h0'\naddress = '10.0.0.1'\nport = 7100\n"; },
       {}},
      {"a host everywhere",
       [](sample& s) { s.hosts = "[[host]]\nname = 'h0'\naddress = '0.0.0.0'\nport = 7100\n"; },
       {"a host needs an address of its own"}},

      {"a gateway's certificate without its key",
       [](sample& s) { s.gateways += "certificate = 'c.pem'\n"; },
       {"the gateway has a `certificate` but no `key`; HTTPS needs both"}},
      {"a gateway's key without its certificate",
       [](sample& s) { s.gateways += "key = 'c.key'\n"; },
       {"the gateway has a `key` but no `certificate`"}},
      {"names of a gateway",
       [](sample& s) { s.gateways += "server_names = ['llm.example.com', '*.example.org']\n"; },
       {}},
      {"what is no name of a gateway",
       [](sample& s) { s.gateways += "server_names = ['http://llm.example.com']\n"; },
       {"expected an array of names such as [\"llm.example.com\", \"*.example.org\"]"}},
      {"a gateway with both",
       [](sample& s) { s.gateways += "certificate = 'c.pem'\nkey = 'c.key'\n"; },
       {}},

      {"links and gateway on one port",
       [](sample& s) { s.gateways = "[[gateway]]\nhost = 'h0'\nport = 7100\n"; },
       {"port 7100 of 127.0.0.1 is taken by the links of host \"h0\""}},
      {"a gateway on all addresses takes the links' port",
       [](sample& s) {
         s.gateways = "[[gateway]]\nhost = 'h0'\naddress = '0.0.0.0'\nport = 7100\n";
       },
       {"port 7100 of 0.0.0.0 is taken"}},
      {"two gateways on one port",
       [](sample& s) { s.gateways += s.gateways; },
       {"has a gateway already", "is taken by the gateway of host \"h0\""}},
      {"one loopback port of two hosts on loopback",
       [](sample& s) {
         s.hosts += host_h1;
         s.gateways += "[[gateway]]\nhost = 'h1'\nport = 8080\n";
       },
       {"port 8080 of 127.0.0.1 is taken"}},
      {"one port on two loopback addresses",
       [](sample& s) {
         s.hosts += host_h1;
         s.gateways += "[[gateway]]\nhost = 'h1'\naddress = '127.0.0.2'\nport = 8080\n";
       },
       {}},
      {"one loopback port on two machines",
       [](sample& s) {
         s.cluster += "insecure_links = true\n";
         s.hosts = "[[host]]\nname = 'h0'\naddress = '10.0.0.1'\nport = 7100\n[[host]]\nname = "
                   "'h1'\naddress = '10.0.0.2'\nport = 7100\n";
         s.gateways += "[[gateway]]\nhost = 'h1'\nport = 8080\n";
       },
       {}},

      {"the host transfer between processes",
       [](sample& s) {
         s.pools = split_pools;
         s.rest = "[transfer]\nkind = 'host'\n";
       },
       {"carries KV within one process only"}},
      {"a transfer that nobody needs",
       [](sample& s) { s.rest = "[transfer]\ntls = 'tcp'\n"; },
       {"`tls` has no effect"}},
      {"an admin port", [](sample& s) { s.hosts += "admin_port = 7101\n"; }, {}},
      {"an admin port that the links have",
       [](sample& s) { s.hosts += "admin_port = 7100\n"; },
       {"port 7100 of 127.0.0.1 is taken by the admin port of host \"h0\""}},
      {"an admin port beyond loopback",
       [](sample& s) { s.hosts += "admin_port = 7101\nadmin_address = '10.0.0.1'\n"; },
       {}},
      {"plain links of one host",
       [](sample& s) { s.cluster += "insecure_links = true\n"; },
       {"`insecure_links` has no effect: there is one host only"}},
      {"a plain admin port beyond loopback",
       [](sample& s) {
         s.hosts += "admin_port = 7101\nadmin_address = '10.0.0.1'\n";
         s.cluster += "insecure_links = true\n";
       },
       {}},
      {"an admin address without a port",
       [](sample& s) { s.hosts += "admin_address = '127.0.0.2'\n"; },
       {"`admin_address` has no effect: there is no `admin_port`"}},
      {"a default, written out, that nobody needs",
       [](sample& s) { s.rest = "[transfer]\nkind = 'ucx'\n"; },
       {}},
      {"a rest that nobody hands over",
       [](sample& s) { s.routers += "decode_prefills_tokens_max = 3\n"; },
       {"`decode_prefills_tokens_max` has no effect"}},
      {"KV settings of a model with two engines, whose streams move when one is drained",
       [](sample& s) {
         s.pools += "engines_per_host = 2\n";
         s.rest = "[transfer]\nbuffer_bytes = '128MiB'\n";
       },
       {}},
      {"pieces larger than the buffers",
       [](sample& s) {
         s.pools = split_pools;
         s.rest = "[transfer]\nbuffer_bytes = '8MiB'\n";
       },
       {"piece_bytes_max (16MiB) does not fit into buffer_bytes (8MiB)"}},

      {"a heartbeat slower than its timeout",
       [](sample& s) { s.rest = "[health]\nheartbeat_interval = '4s'\n"; },
       {"heartbeat_interval (4s) must be less than heartbeat_timeout (4s)"}},
      {"a renewal later than the lease",
       [](sample& s) { s.rest = "[health]\nlease = '900ms'\n"; },
       {"lease_renewal (1s) must be less than lease (900ms)"}},
      {"a back-off that shrinks",
       [](sample& s) { s.rest = "[health]\nrestart_backoff_min = '11s'\n"; },
       {"restart_backoff_min (11s) is more than restart_backoff_max (10s)"}},
      {"prompts that cannot be held",
       [](sample& s) { s.rest = "[limits]\nheld_prompt_bytes_max = '1MiB'\n"; },
       {"held_prompt_bytes_max (1MiB) is less than prompt_bytes_max (8MiB)"}},
  };
  for (const auto& r : rows) {
    INFO(r.what);
    sample s;
    r.change(s);
    const auto problems = problems_of(s.text());
    INFO(joined(problems));
    REQUIRE(problems.size() == r.expected.size());
    for (std::size_t i = 0; i < problems.size(); ++i) {
      INFO(r.expected[i]);
      CHECK(problems[i].find(r.expected[i]) != std::string::npos);
    }
  }
}

TEST_CASE("a problem across sections stands at the value that can be changed", "[config]") {
  sample s;
  s.pools += "kv_tokens = 100\n";
  CHECK(problems_of(s.text()).at(0).find("14:13: kv_tokens (100)") == 0);
  s = {};
  s.rest = "[health]\nheartbeat_timeout = '500ms'\n";
  CHECK(problems_of(s.text()).at(0).find("20:21: heartbeat_interval (1s) must be less") == 0);
}

TEST_CASE("too many hosts", "[config]") {
  sample s;
  s.hosts = "";
  std::string names;
  for (std::size_t i = 0; i <= hosts_max; ++i) {
    const auto n = std::to_string(i);
    s.hosts += "[[host]]\nname = 'h" + n + "'\naddress = '127.0.1." + std::to_string(i % 256) +
               "'\nport = " + std::to_string(7000 + i) + "\n";
    names += "'h" + n + "', ";
  }
  s.pools = "[[pool]]\nname = 'p'\nmodel = 'm'\nhosts = [" + names + "]\n";
  CHECK(joined(problems_of(s.text())).find("257 hosts; at most 256 are supported") !=
        std::string::npos);
}

TEST_CASE("of far too many records only their number is said", "[config]") {
  sample s;
  s.hosts = "";
  // All on one machine and port: each pair would have to be told apart by its address.
  for (std::size_t i = 0; i < 10'000; ++i)
    s.hosts += "[[host]]\nname = 'h" + std::to_string(i) + "'\naddress = '127.1." +
               std::to_string(i / 250) + "." + std::to_string(1 + i % 250) + "'\nport = 7000\n";
  auto problems = problems_of(s.text());
  REQUIRE(problems.size() == 1);
  CHECK(problems[0].find("10000 hosts; at most 256 are supported") != std::string::npos);

  s = {};
  for (std::size_t i = 0; i < 10'000; ++i)
    s.pools += "[[pool]]\nname = 'p'\nmodel = 'm'\nhosts = ['h0']\n";
  problems = problems_of(s.text());
  REQUIRE(joined(problems).find("10001 pools; at most 1024 are supported") != std::string::npos);
}

TEST_CASE("as many records as are supported, and names that lead nowhere", "[config]") {
  sample s;
  s.hosts = "";
  std::string names;
  for (std::size_t i = 0; i < hosts_max; ++i) {
    s.hosts += "[[host]]\nname = 'h" + std::to_string(i) + "'\naddress = '127.0.2." +
               std::to_string(i % 256) + "'\nport = 7000\n";
    names += "'h" + std::to_string(i) + "', ";
  }
  s.gateways = "";
  for (std::size_t i = 0; i < hosts_max; ++i)
    s.gateways += "[[gateway]]\nhost = 'h" + std::to_string(i) +
                  "'\nport = " + std::to_string(8000 + i) + "\n";
  s.pools = "[[pool]]\nname = 'p'\nmodel = 'm'\nhosts = [" + names + "]\n";
  CHECK(joined(problems_of(s.text())) == "");
  for (std::size_t i = 0; i < 50'000; ++i) names += "'x" + std::to_string(i) + "', ";
  s.pools = "[[pool]]\nname = 'p'\nmodel = 'm'\nhosts = [" + names + "]\n";
  CHECK(joined(problems_of(s.text())).find("and 49900 more problems") != std::string::npos);
}

TEST_CASE("links without TLS are named at each check", "[config]") {
  sample s;
  s.hosts += host_h1;
  s.gateways += gateway_h1;
  CHECK(warnings(*parse_text(s.text()).value).empty());
  CHECK(links_use_tls(*parse_text(s.text()).value));
  s.cluster += "insecure_links = true\n";
  const auto plain = parse_text(s.text());
  REQUIRE(plain);
  CHECK_FALSE(links_use_tls(*plain.value));
  const auto all = warnings(*plain.value);
  REQUIRE(all.size() == 1);
  CHECK(to_string(all[0]).find("/etc/troupe/c.toml:3:18: warning: insecure_links = true") == 0);
}

TEST_CASE("one host has no links; a console beyond loopback uses TLS", "[config]") {
  sample s;
  s.hosts += "admin_port = 7101\n";
  const auto here = parse_text(s.text());
  CHECK_FALSE(links_use_tls(*here.value));
  CHECK_FALSE(console_uses_tls(*here.value, here.value->hosts[0]));
  s.hosts += "admin_address = '10.0.0.1'\n";
  const auto there = parse_text(s.text());
  CHECK(console_uses_tls(*there.value, there.value->hosts[0]));
}

namespace {

// How it can fail: a tenant that may do something with a model and has no limits for it; a limit of
// nothing that reads as one; a key that lets two tenants in; a key in the log.

const std::string hash_a(64, 'a'), hash_b(64, 'B');

std::string tenant_text(const std::string& name, const std::string& hash,
                        const std::string& limit = "guaranteed_mu_per_minute = 100\n") {
  return "[[tenant]]\nname = '" + name + "'\nkeys = ['" + hash + "']\nmodels = ['m']\n" +
         "[[tenant.limit]]\nmodel = 'm'\n" + limit;
}

}  // namespace

TEST_CASE("tenants: what is wrong with them is named, with its place", "[config]") {
  struct row {
    const char* what;
    std::string text;
    std::vector<const char*> expected;
  };
  const row rows[] = {
      {"nothing", tenant_text("a", hash_a), {}},
      {"two, best effort only",
       tenant_text("a", hash_a, "best_effort_weight = 0.5\n") + tenant_text("b", hash_b),
       {}},
      {"negative MU",
       tenant_text("a", hash_a, "guaranteed_mu_per_minute = -1\n"),
       {"25:28: `guaranteed_mu_per_minute` is the integer -1; expected a number above 0, up to "
        "1000000000"}},
      {"zero MU",
       tenant_text("a", hash_a, "guaranteed_mu_per_minute = 0\n"),
       {"25:28: `guaranteed_mu_per_minute` is the integer 0; expected a number above 0"}},
      {"zero burst",
       tenant_text("a", hash_a, "guaranteed_mu_per_minute = 1\nburst_mu = 0.0\n"),
       {"26:12: `burst_mu` is the number 0; expected a number above 0"}},
      {"nothing at all",
       tenant_text("a", hash_a, ""),
       {"23:1: tenant \"a\" may use nothing of model \"m\""}},
      {"a burst of nothing",
       tenant_text("a", hash_a, "best_effort_weight = 1\nburst_mu = 5\n"),
       {"26:12: `burst_mu` has no effect: there is no `guaranteed_mu_per_minute`"}},
      {"cut off from nobody",
       tenant_text("a", hash_a, "guaranteed_mu_per_minute = 1\nisolated_mu_per_minute = 0.1\n"),
       {"26:26: `isolated_mu_per_minute` has no effect: there is one gateway only"}},
      {"no limits for a model",
       "[[tenant]]\nname = 'a'\nkeys = ['" + hash_a + "']\nmodels = ['m']\n",
       {"22:10: tenant \"a\" may use model \"m\", but has no [[tenant.limit]] for it"}},
      {"limits for a model that it may not use",
       tenant_text("a", hash_a) + "[[tenant.limit]]\nmodel = 'x'\nbest_effort_weight = 1\n",
       {"27:9: there is no model \"x\"", "27:9: `model` has no effect: it is not among"}},
      {"limits twice",
       tenant_text("a", hash_a) + "[[tenant.limit]]\nmodel = 'm'\nbest_effort_weight = 1\n",
       {"27:9: tenant \"a\" has two [[tenant.limit]]s for model \"m\"; the other is at "
        "/etc/troupe/c.toml:23:1"}},
      {"an unknown model",
       "[[tenant]]\nname = 'a'\nkeys = ['" + hash_a +
           "']\nmodels = ['n']\n[[tenant.limit]]\nmodel = 'n'\nbest_effort_weight = 1\n",
       {"22:10: there is no model \"n\"", "24:9: there is no model \"n\""}},
      {"two of a name",
       tenant_text("a", hash_a) + tenant_text("a", hash_b),
       {"27:8: there are two tenants \"a\"; the other is at /etc/troupe/c.toml:19:1"}},
      {"a key of two",
       tenant_text("a", hash_a) + tenant_text("b", std::string(64, 'A')),
       {"28:8: the key with hash aaaaaaaa... is also one of tenant \"a\""}},
      {"no keys",
       "[[tenant]]\nname = 'a'\nkeys = []\nmodels = ['m']\n[[tenant.limit]]\nmodel = "
       "'m'\nbest_effort_weight = 1\n",
       {"21:8: `keys` is an empty array; expected an array of one or more hashes"}},
      {"no models",
       "[[tenant]]\nname = 'a'\nkeys = ['" + hash_a + "']\nmodels = []\n",
       {"22:10: `models` is an empty array"}},
      {"a key in place of its hash",
       tenant_text("a", "tr-secretsecret"),
       {"21:8: `keys` is an array whose element 1 is no hash (not shown, in case it is a key)"}},
      {"limit is no array of tables",
       "[[tenant]]\nname = 'a'\nlimit = 3\nkeys = ['" + hash_a + "']\nmodels = ['m']\n",
       {"21:9: `limit` is the integer 3; write [[tenant.limit]]", "23:10: tenant \"a\" may use"}},
      {"an unknown key",
       tenant_text("a", hash_a, "guaranteed_mu_per_minutes = 3\nbest_effort_weight = 1\n"),
       {"25:1: [[tenant.limit]] has no key \"guaranteed_mu_per_minutes\"; did you mean "
        "`guaranteed_mu_per_minute`?"}},
  };
  for (const auto& r : rows) {
    sample s;
    s.rest = r.text;
    const auto problems = problems_of(s.text());
    INFO(r.what << ":\n" << joined(problems));
    REQUIRE(problems.size() == r.expected.size());
    for (std::size_t i = 0; i < problems.size(); ++i) CHECK(problems[i].find(r.expected[i]) == 0);
    CHECK(joined(problems).find("secret") == std::string::npos);
  }
}

TEST_CASE("what a tenant's limit does not set follows from what is guaranteed", "[config]") {
  sample s;
  s.rest = tenant_text("a", hash_a);
  const auto one = parse_text(s.text());
  REQUIRE(one);
  CHECK(one.value->tenants[0].limits[0].burst_mu == Approx(5));
  CHECK(one.value->tenants[0].limits[0].isolated_mu_per_minute == 0);
  s.hosts += host_h1;
  s.gateways += gateway_h1;
  const auto two = parse_text(s.text());
  REQUIRE(two);
  CHECK(two.value->tenants[0].limits[0].isolated_mu_per_minute == Approx(5));
  s.rest = tenant_text("a", hash_a,
                       "guaranteed_mu_per_minute = 100\nisolated_mu_per_minute = 60\nburst_mu = "
                       "20\n");
  CHECK(joined(problems_of(s.text())).find("are more than the 100 that are guaranteed") !=
        std::string::npos);
}

TEST_CASE("operators' keys are nobody else's, and want tenants", "[config]") {
  sample s;
  s.cluster += "operator_keys = ['" + hash_b + "']\n";
  CHECK(joined(problems_of(s.text())).find("3:17: `operator_keys` has no effect") == 0);
  s.rest = tenant_text("a", hash_a);
  CHECK(problems_of(s.text()).empty());
  s.rest = tenant_text("a", std::string(64, 'b'));
  CHECK(joined(problems_of(s.text())).find("is also among `operator_keys`") != std::string::npos);
}

TEST_CASE("which of two gateways tenants depend on is named at each check", "[config]") {
  sample s;
  s.rest = tenant_text("a", hash_a);
  s.hosts += "[[host]]\nname = 'h1'\naddress = '127.0.0.2'\nport = 7100\n";
  s.gateways += "[[gateway]]\nhost = 'h1'\nport = 8081\n";
  REQUIRE(problems_of(s.text()).empty());
  const auto two = warnings(*parse_text(s.text()).value);
  REQUIRE(two.size() == 1);
  CHECK(two[0].message.find("while 'h0', the first by name, is lost") != std::string::npos);
  s.hosts += "[[host]]\nname = 'h2'\naddress = '127.0.0.3'\nport = 7100\n";
  s.gateways += "[[gateway]]\nhost = 'h2'\nport = 8082\n";
  CHECK(warnings(*parse_text(s.text()).value).empty());
}

TEST_CASE("who may come in beyond loopback is named at each check", "[config]") {
  sample s;
  CHECK(warnings(*parse_text(s.text()).value).empty());
  s.gateways = "[[gateway]]\nhost = 'h0'\naddress = '0.0.0.0'\nport = 8080\n";
  const auto open = warnings(*parse_text(s.text()).value);
  REQUIRE(open.size() == 1);
  CHECK(to_string(open[0]).find("/etc/troupe/c.toml:14:1: note: there is no [[tenant]]") == 0);
  s.rest = tenant_text("a", hash_a);
  const auto plain = warnings(*parse_text(s.text()).value);
  REQUIRE(plain.size() == 1);
  CHECK(plain[0].message.find("unencrypted") != std::string::npos);
  s.gateways += "certificate = 'x.pem'\nkey = 'x.key'\n";
  CHECK(warnings(*parse_text(s.text()).value).empty());
}
