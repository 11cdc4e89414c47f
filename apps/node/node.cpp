#include "apps/node/node.hpp"

#include "actors/capacity/calibrated.hpp"
#include "actors/control/sqlite_store.hpp"
#include "actors/link/handshake.hpp"
#include "actors/link/system_config.hpp"
#include "apps/node/console.hpp"
#include "apps/node/descriptors.hpp"
#include "apps/node/local_address.hpp"
#include "apps/node/log.hpp"
#include "apps/node/node_credentials.hpp"
#include "apps/node/node_tree.hpp"
#include "apps/node/signals.hpp"
#include "config/calibration.hpp"
#include "config/check.hpp"
#include "config/parse.hpp"
#include "config/problem.hpp"
#include "messages/base/exit_codes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string_view>

namespace troupe::apps {

namespace {

/// What a second signal leaves to engines between SIGTERM and SIGKILL is theirs; waiting for jobs
/// ends at once.
constexpr std::chrono::milliseconds no_wait_ms{0};
/// However long this node's own streams took: what its engines compute for others gets so long to
/// move there.
constexpr std::chrono::milliseconds engines_drain_min_ms{5'000};

int fail(int code, const std::string& message) {
  std::fprintf(stderr, "troupe node: %s\n", message.c_str());
  return code;
}

/// Ascending.
std::vector<std::uint32_t> usable_cpus() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<std::uint32_t> cpus;
  if (::sched_getaffinity(0, sizeof mask, &mask) != 0) return cpus;
  for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  return cpus;
}

std::string host_names(const config::cluster& c) {
  std::string names;
  for (const auto& h : c.hosts) names += (names.empty() ? "" : ", ") + h.name;
  return names;
}

/// Every address that this host is to listen on, tried before anything is started. All problems at
/// once.
int check_addresses(const config::cluster& c, const config::host& self) {
  int code = exit_ok;
  auto check = [&](const std::string& what, const std::string& address, std::uint16_t port,
                   const config::location& where) {
    if (auto r = check_listen_address(what, address, port); !r)
      code = fail(exit_address, to_string(where) + ": " + r.error().message);
  };
  check("links of host " + self.name, self.address, self.port, self.where);
  if (self.admin_port != 0)
    check("admin port of host " + self.name, self.admin_address, self.admin_port, self.where);
  for (const auto& g : c.gateways)
    if (g.host == self.name) check("gateway of host " + self.name, g.address, g.port, g.where);
  return code;
}

/// For trying what a rolling upgrade does: a node that speaks no newer protocol than this, as a
/// build before this one. False: it is no such version.
bool read_protocol_max(std::uint16_t& version) {
  const auto* text = std::getenv("TROUPE_PROTOCOL_MAX");
  if (text == nullptr) return true;
  const std::string_view value{text};
  const auto [end, failure] = std::from_chars(value.begin(), value.end(), version);
  return failure == std::errc{} && end == value.end() && version >= link::protocol_version_min &&
         version <= link::protocol_version;
}

/// Whether this process may use the CPUs that engines of this host are to be bound to. All problems
/// at once.
int check_cpus(const config::cluster& c, const config::host& self) {
  const auto available = usable_cpus();
  int code = exit_ok;
  for (const auto& p : c.pools) {
    if (std::find(p.hosts.begin(), p.hosts.end(), self.name) == p.hosts.end()) continue;
    std::vector<std::uint32_t> missing;
    for (std::uint32_t i = 0; i < p.engines_per_host; ++i)
      for (const auto cpu : config::cpus_of(p, i))
        if (!std::binary_search(available.begin(), available.end(), cpu)) missing.push_back(cpu);
    if (missing.empty()) continue;
    const auto at = c.origins.find(fmt::format("pool[{}].cpus", &p - c.pools.data()));
    code = fail(exit_config,
                fmt::format("{}: the cpus {} of pool \"{}\" are not there on this machine, or not "
                            "for this process; {} are",
                            to_string(at == c.origins.end() ? p.where : at->second),
                            fmt::join(missing, ", "), p.name, fmt::join(available, ", ")));
  }
  return code;
}

/// Fewer than all that limits allow: then some clients wait, or are refused, before the limit.
void check_descriptors(const config::cluster& c, const std::string& host) {
  const auto needed = descriptors_needed(c, host);
  if (const auto allowed = allow_descriptors(needed); allowed < needed)
    std::fprintf(stderr, "troupe node: %s\n",
                 fmt::format("this process may have {} open files, but {} would be needed at "
                             "limits.connections_max ({}): raise its limit (LimitNOFILE in "
                             "systemd, ulimit -n), or lower limits.connections_max",
                             allowed, needed, c.limits.connections_max)
                     .c_str());
}

/// The state of the control host, if this is it. Null: it isn't. Errors: as `sqlite_store::open`,
/// with the place in the cluster file.
expected<std::shared_ptr<control::store>> open_control_state(const config::cluster& c,
                                                             const config::host& self) {
  if (!c.control || c.control->host != self.name) return std::shared_ptr<control::store>{};
  auto opened = control::sqlite_store::open(c.control->state, c.section.id);
  if (opened) return std::shared_ptr<control::store>{*std::move(opened)};
  const auto at = c.origins.find("control.state");
  return error{opened.error().code,
               fmt::format("{}: {}",
                           to_string(at == c.origins.end() ? c.control->where : at->second),
                           opened.error().message)};
}

/// Serves until told to stop. True when the end was asked for.
bool serve(node_tree& tree, stop_signals& signals, const config::limits& limits) {
  if (signals.wait() == stop_signals::cause::woken) return false;
  tree.drain_shards();
  if (limits.drain_notice > no_wait_ms && tree.announce_drain()) {
    say(fmt::format("stopping: /readyz says so for {} ms before the gateway closes; another signal "
                    "closes it now",
                    limits.drain_notice.count()));
    // Nothing else matters any more but its end.
    if (signals.wait(limits.drain_notice) == stop_signals::cause::woken) return true;
  }
  say(fmt::format("stopping: streams have {} s to end; another signal ends them at once",
                  std::chrono::duration_cast<std::chrono::seconds>(limits.drain_timeout).count()));
  const auto until = std::chrono::steady_clock::now() + limits.drain_timeout;
  bool hurry = false;
  auto poll = [&] {
    hurry = hurry || signals.wait(no_wait_ms) == stop_signals::cause::signal;
    return hurry;
  };
  tree.drain_requests(poll);
  auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      until - std::chrono::steady_clock::now());
  left = hurry ? no_wait_ms : std::max(left, engines_drain_min_ms);
  tree.stop_engines(left, poll);
  return true;
}

}  // namespace

int run_node(const node_options& options) {
  auto loaded = config::load(options.config_file);
  if (!loaded) {
    for (const auto& p : loaded.problems) std::fprintf(stderr, "%s\n", to_string(p).c_str());
    return fail(exit_config,
                fmt::format("the cluster file has {} problem{}", loaded.problems.size(),
                            loaded.problems.size() == 1 ? "" : "s"));
  }
  const auto& cluster = *loaded.value;
  const auto* self = cluster.find_host(options.host);
  if (!self)
    return fail(exit_config, fmt::format("{}: no [[host]] is called '{}'; there is {}",
                                         options.config_file, options.host, host_names(cluster)));
  if (int code = check_cpus(cluster, *self); code != exit_ok) return code;
  const auto costs = config::read_costs(cluster);
  for (const auto& p : costs.problems) std::fprintf(stderr, "%s\n", to_string(p).c_str());
  if (!costs.problems.empty())
    return fail(exit_config, "the costs of a pool that the cluster file names cannot be taken");
  node_credentials credentials;
  const auto say_problem = [](const config::problem& p) {
    std::fprintf(stderr, "%s\n", to_string(p).c_str());
  };
  for (const auto& w : config::warnings(cluster)) say_problem(w);
  if (!load_credentials(cluster, *self, std::chrono::system_clock::now(), say_problem, say_problem,
                        credentials))
    return fail(exit_config, "it cannot prove who it is");
  if (int code = check_addresses(cluster, *self); code != exit_ok) return code;
  std::uint16_t protocol_max = link::protocol_version;
  if (!read_protocol_max(protocol_max))
    return fail(exit_usage, fmt::format("TROUPE_PROTOCOL_MAX is no version of the protocol: this "
                                        "build speaks {} to {}",
                                        link::protocol_version_min, link::protocol_version));

  check_descriptors(cluster, options.host);
  stop_signals signals;
  // Its thread is not to get the signals either.
  auto control_state = open_control_state(cluster, *self);
  if (!control_state)
    return fail(control_state.error().code == "state_unavailable" ? exit_address : exit_config,
                control_state.error().message);
  set_up_log(options.log_level, "%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  link::system_config config{cluster.health.heartbeat_interval, cluster.health.heartbeat_timeout};
  caf::actor_system system{config};
  // Whoever still lives at the end holds nothing that must be saved: engines are gone, clients have
  // their endings.
  system.await_actors_before_shutdown(false);
  bool asked = false;
  {
    node_setup setup{cluster, options.host, std::filesystem::absolute(options.config_file).string(),
                     "/proc/self/exe", static_cast<std::uint64_t>(std::time(nullptr))};
    setup.program = std::filesystem::read_symlink("/proc/self/exe").string();
    setup.protocol_max = protocol_max;
    setup.credentials = std::move(credentials);
    setup.costs = capacity::cost_models_of(costs);
    setup.control_state = *std::move(control_state);
    node_tree tree{system, std::move(setup), [&](std::string why) {
                     spdlog::critical("event=ground_lost reason=\"{}\"", why);
                     signals.wake();
                   }};
    if (auto started = tree.start(); !started) return fail(exit_address, started.error().message);
    say(tree.describe());
    spdlog::info("event=node_started host={} cluster={} pid={} config_digest={}", options.host,
                 cluster.section.id, ::getpid(), cluster.digest);
    asked = serve(tree, signals, cluster.limits);
    tree.stop();
  }
  spdlog::info("event=node_stopped host={}", options.host);
  return asked ? exit_ok : exit_internal;
}

}  // namespace troupe::apps
