#pragma once

#include "topology/topology.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe::config {

using milliseconds = std::chrono::milliseconds;

/// Where a value stands in the cluster file; line 0: a default.
struct location {
  std::string file;
  std::uint32_t line = 0;
  std::uint32_t column = 0;
};

struct cluster_section {
  std::string id;               ///< `cluster.id`: peers of another cluster are refused
  bool insecure_links = false;  ///< links between hosts and consoles without TLS
  std::string certificates;     ///< folder of the CA's and the hosts' certificates; expanded
  std::string certificates_written = "certificates";
  /// SHA-256 of API keys that read `/metrics` and `/debug` where there are tenants, hexadecimal.
  std::vector<std::string> operator_keys;
};

struct host {
  std::string name;
  std::string
      address;  ///< IP address that peers use; must belong to the machine that claims the name
  std::uint16_t port = 0;        ///< of the node's link listener
  std::uint16_t admin_port = 0;  ///< for consoles; 0: none
  std::string admin_address = "127.0.0.1";
  topology::place place;
  location where;
};

enum class engine_kind : std::uint8_t { llama, simulated };
enum class pool_role : std::uint8_t { prefill, decode, both };

struct model {
  std::string name;  ///< what clients ask for
  std::string path;  ///< GGUF file, expanded and absolute; empty only where all pools of the model
                     ///< are simulated (byte text model)
  std::string path_written;   ///< as in the cluster file: relative to it, with `~`, ${VAR} and
                              ///< ${VAR:-default}
  std::string chat_template;  ///< empty: the model's own; else a llama.cpp name ("gemma", "chatml")
                              ///< or Jinja source from `chat_template_file`
  std::string chat_template_file;  ///< expanded, as `path`
  std::string chat_template_file_written;
  std::uint32_t context_tokens = 8192;
  location where;
};

/// Time model and faults of a simulated engine.
struct simulation {
  double prefill_tokens_per_second = 0;  ///< 0: no time at all
  double decode_step_us = 0;             ///< fixed part of a step
  double decode_us_per_stream = 0;
  std::uint64_t seed = 1;
  double fault_probability_per_step = 0;
  std::string fault;  ///< "", "slow", "hang", "crash", "garbage"
  std::string
      crash_on;  ///< the process ends when it computes a prompt with this text; empty: never
};

struct pool {
  std::string name;
  std::string model;
  pool_role role = pool_role::both;
  std::vector<std::string> hosts;
  std::uint32_t engines_per_host = 1;
  std::uint32_t slots = 8;
  std::uint32_t kv_tokens = 16384;
  std::uint32_t step_tokens = 512;
  std::uint32_t cached_prefixes = 32;
  bool prefix_reuse = true;
  engine_kind engine = engine_kind::llama;
  std::uint32_t threads = 0;  ///< compute threads; 0: cores of the machine ÷ engines on it
  std::uint32_t gpu_layers = 0;
  std::vector<std::string> cpus;   ///< numbers and ranges, dealt out to the engines of a host;
                                   ///< empty: all that the node may use
  std::uint64_t memory_limit = 0;  ///< of an engine's own data; 0: none
  std::uint64_t core_limit = 0;    ///< of an engine's core file; 0: none is written
  std::string costs;  ///< file of `troupe bench calibrate`, expanded; empty: by measured speed
  std::string costs_written;
  bool costs_of_other_hardware = false;  ///< take `costs` whatever it was calibrated on
  simulation sim;
  location where;
};

struct gateway {
  std::string host;
  std::string address = "127.0.0.1";  ///< where it listens; 0.0.0.0: all addresses of the machine
  std::uint16_t port = 0;
  /// For `Host`, beside addresses and localhost; empty: none on loopback, and any elsewhere.
  std::vector<std::string> server_names;
  std::string certificate;  ///< PEM file, expanded; empty: plain HTTP
  std::string certificate_written;
  std::string key;
  std::string key_written;
  location where;
};

struct router {
  std::string host;
  std::uint32_t decode_prefills_tokens_max =
      64;  ///< a suffix up to this is computed by decode itself
  location where;
};

/// Who decides which router shard has which keys. Where there is none, each has the same part.
struct control {
  std::string host;
  std::string state;  ///< SQLite file of terms and the last assignment; expanded
  std::string state_written;
  milliseconds interval{60'000};  ///< between two looks at the shards' loads
  double tolerance = 0.1;         ///< see `control::assigner_limits`
  double churn_max = 0.09;        ///< the same
  location where;
};

struct limits {
  std::uint64_t prompt_bytes_max = 8U << 20U;
  std::uint64_t header_bytes_max = 32U << 10U;
  std::uint32_t headers_max = 100;
  milliseconds header_timeout{10'000};
  milliseconds body_timeout{60'000};
  milliseconds idle_timeout{120'000};  ///< keep-alive connections
  milliseconds request_timeout{
      600'000};  ///< a request's deadline, unless its X-Request-Timeout-Ms is shorter
  milliseconds drain_notice{5'000};  ///< `/readyz` says no so long before a listener closes
  milliseconds drain_timeout{30'000};
  std::uint64_t stream_buffer_bytes_max = 256U << 10U;  ///< unsent bytes of one client
  milliseconds stalled_client_timeout{30'000};          ///< with the buffer full
  std::uint32_t connections_max = 4096;
  std::uint32_t requests_max = 4096;                  ///< open requests of one node; above it 503
  std::uint64_t held_prompt_bytes_max = 512U << 20U;  ///< of a node: prompts kept for failover
  std::uint32_t choices_max = 16;
  std::uint32_t prompts_max = 64;
};

struct health {
  milliseconds heartbeat_interval{1'000};
  milliseconds heartbeat_timeout{4'000};
  milliseconds lease{3'000};
  milliseconds lease_renewal{1'000};
  milliseconds report_interval{1'000};
  milliseconds load_timeout{300'000};  ///< without any progress of loading
  milliseconds hang_timeout{5'000};    ///< of an engine's step without any sign of life
  milliseconds probe_after{10'000};    ///< of an engine without progress of a request
  milliseconds probe_timeout{5'000};
  milliseconds transfer_timeout{10'000};  ///< of one phase of a KV transfer without progress
  std::uint32_t restart_intensity = 5;
  milliseconds restart_period{60'000};
  milliseconds restart_backoff_min{200};
  milliseconds restart_backoff_max{10'000};
};

struct transfer {
  std::string kind = "ucx";                 ///< "ucx" or "host" (one process; tests)
  std::uint64_t buffer_bytes = 64U << 20U;  ///< registered, for each engine
  std::uint64_t piece_bytes_max = 16U << 20U;
  std::string tls;  ///< UCX_TLS for the engines; empty: by proximity
};

/// What a tenant may do with one model. Model units (MU): see `capacity::cost_model`.
struct tenant_limit {
  std::string model;
  double guaranteed_mu_per_minute = 0;  ///< 0: nothing is guaranteed
  double burst_mu = 0;                  ///< that may be saved up
  double isolated_mu_per_minute = 0;    ///< of each gateway that hears of no other
  double best_effort_weight = 0;        ///< 0: nothing above what is guaranteed
  std::uint32_t concurrency_max = 0;    ///< requests that run at a time, anywhere; 0: no limit
  std::uint32_t priority = 0;           ///< larger goes first
  milliseconds wait_max{2'000};         ///< a request that would wait longer is refused at once
  location where;
};

/// Who may send requests. Where there is no tenant, everybody may.
struct tenant {
  std::string name;
  std::vector<std::string> keys;    ///< SHA-256 of its API keys, hexadecimal
  std::vector<std::string> models;  ///< that it may use
  bool share_prefixes = false;      ///< with all other tenants that do
  std::vector<tenant_limit> limits;
  location where;
};

/// The cluster file, checked: every reference resolves, every value is in range.
struct cluster {
  std::string file;
  std::uint64_t generation = 1;
  std::string digest;  ///< of the effective configuration, hex
  std::map<std::string, std::uint64_t> section_digests;
  cluster_section section;
  std::vector<host> hosts;
  std::vector<model> models;
  std::vector<pool> pools;
  std::vector<gateway> gateways;
  std::vector<router> routers;  ///< shard `router/<n>` is the n-th
  std::optional<struct control> control;
  std::vector<tenant> tenants;  ///< none: everybody may send requests
  struct limits limits;
  struct health health;
  struct transfer transfer;
  /// Where each value that is not a default stands, by its path: `limits.header_timeout`,
  /// `pool[1].slots`, `pool[1].simulation.seed`.
  std::map<std::string, location> origins;

  /// Null where there is none of that name.
  const host* find_host(const std::string& name) const;
  const model* find_model(const std::string& name) const;
  const pool* find_pool(const std::string& name) const;
};

std::string to_string(engine_kind kind);
std::string to_string(pool_role role);

/// One engine that the cluster file asks for.
struct engine_instance {
  std::string name;  ///< `decode/llama/h2.0`: role, pool, host, index
  std::string pool;
  std::string host;
  std::uint32_t index = 0;
};

/// The CPUs of one engine: its share of its pool's, `index` being its own on its host. Empty: it is
/// bound to none.
std::vector<std::uint32_t> cpus_of(const pool& p, std::uint32_t index);

/// The engines of one host in file order.
std::vector<engine_instance> engines_on(const cluster& c, const std::string& host);
/// Another engine, anywhere, has the same role and model as those of `p`: it could go on with their
/// streams.
bool has_others_like(const cluster& c, const pool& p);

}  // namespace troupe::config
