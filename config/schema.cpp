#include "config/schema.hpp"

#include "config/values.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

namespace troupe::config {

namespace {

constexpr std::int64_t second_ms = 1'000;
constexpr std::int64_t hour_ms = 3'600 * second_ms;
constexpr std::int64_t kib = 1LL << 10U;
constexpr std::int64_t mib = 1LL << 20U;
constexpr std::int64_t gib = 1LL << 30U;
constexpr std::int64_t exact_integer_max = (1LL << 53U) -
                                           1;  // survives readers that keep numbers as doubles

// In the order of the enumerations.
constexpr std::string_view roles[] = {"prefill", "decode", "both"};
constexpr std::string_view engines[] = {"llama", "simulated"};
constexpr std::string_view faults[] = {"", "slow", "hang", "crash", "garbage"};
constexpr std::string_view transfers[] = {"ucx", "host"};

constexpr rule required(rule r) {
  r.required = true;
  return r;
}
constexpr rule of(value_type type) { return {type}; }
constexpr rule count(std::int64_t min, std::int64_t max) {
  return {value_type::count, false, min, max};
}
constexpr rule number(std::int64_t min, std::int64_t max) {
  return {value_type::number, false, min, max};
}
constexpr rule positive_number(std::int64_t max) {
  return {value_type::number, false, 0, max, {}, true};
}
constexpr rule bytes(std::int64_t min, std::int64_t max) {
  return {value_type::bytes, false, min, max};
}
constexpr rule duration(std::int64_t min, std::int64_t max) {
  return {value_type::duration, false, min, max};
}
constexpr rule one_of(std::span<const std::string_view> words) {
  return {value_type::choice, false, 0, 0, words};
}

constexpr rule name = of(value_type::name);
constexpr rule port = required(count(1, 65'535));

// -- the sections -------------------------------------------------------------

constexpr field<cluster> cluster_fields[] = {
    {"id", required(name), [](cluster& x) -> slot { return &x.section.id; },
     "Peers of another cluster are refused."},
    {"generation", count(1, exact_integer_max), [](cluster& x) -> slot { return &x.generation; },
     "Of this file: raise it with each change, so that nodes can tell who is behind."},
    {"insecure_links", of(value_type::flag),
     [](cluster& x) -> slot { return &x.section.insecure_links; },
     "Links between hosts, and consoles beyond loopback, are neither encrypted nor do they prove "
     "who is there. Otherwise both use TLS by `certificates`."},
    {"certificates", of(value_type::path),
     [](cluster& x) -> slot { return &x.section.certificates_written; },
     "Folder of `troupe cert`, relative to the cluster file: ca.pem, and a host's certificate and "
     "key, by which links between hosts, and consoles beyond loopback, use TLS."},
    {"operator_keys", of(value_type::key_hashes),
     [](cluster& x) -> slot { return &x.section.operator_keys; },
     "Hashes of API keys (`troupe key create`) by which gateways answer /metrics and /debug where "
     "there are tenants; nobody else is told there what others do."},
};

constexpr field<host> host_fields[] = {
    {"name", required(name), [](host& x) -> slot { return &x.name; },
     "What other sections call it."},
    {"address", required(of(value_type::address)), [](host& x) -> slot { return &x.address; },
     "IP address that peers use; must belong to the machine that claims the name."},
    {"port", port, [](host& x) -> slot { return &x.port; }, "Of the node's link listener."},
    {"admin_port", count(0, 65'535), [](host& x) -> slot { return &x.admin_port; },
     "For `troupe console`; 0: none. Whoever can connect to it may do all that a console can."},
    {"admin_address", of(value_type::address), [](host& x) -> slot { return &x.admin_address; },
     "Where the admin port is."},
    {"region", of(value_type::label), [](host& x) -> slot { return &x.place.region; },
     "Place: prefill and decode that are near each other are preferred."},
    {"zone", of(value_type::label), [](host& x) -> slot { return &x.place.zone; },
     "Place, within the region."},
    {"rack", of(value_type::label), [](host& x) -> slot { return &x.place.rack; },
     "Place, within the zone."},
};

constexpr field<model> model_fields[] = {
    {"name", required(of(value_type::model_name)), [](model& x) -> slot { return &x.name; },
     "What clients ask for."},
    {"path", of(value_type::path), [](model& x) -> slot { return &x.path_written; },
     "GGUF file, relative to the cluster file; `~`, ${VAR} and ${VAR:-default} are expanded. A "
     "simulated pool does without."},
    {"chat_template", of(value_type::text), [](model& x) -> slot { return &x.chat_template; },
     "A built-in template (gemma, chatml, ...) in place of the model's own."},
    {"chat_template_file", of(value_type::path),
     [](model& x) -> slot { return &x.chat_template_file_written; },
     "A Jinja file in place of the model's own template."},
    {"context_tokens", count(16, 1LL << 24U), [](model& x) -> slot { return &x.context_tokens; },
     "Longest prompt with its answer."},
};

constexpr field<pool> pool_fields[] = {
    {"name", required(name), [](pool& x) -> slot { return &x.name; },
     "Part of its workers' names."},
    {"model", required(of(value_type::model_name)), [](pool& x) -> slot { return &x.model; },
     "Served model."},
    {"role", one_of(roles), [](pool& x) -> slot { return &x.role; },
     "What its engines compute; `both` needs no KV transfer."},
    {"hosts", required(of(value_type::names)), [](pool& x) -> slot { return &x.hosts; },
     "Hosts that run its engines."},
    {"engines_per_host", count(1, 64), [](pool& x) -> slot { return &x.engines_per_host; },
     "Engine processes on each of the hosts."},
    {"engine", one_of(engines), [](pool& x) -> slot { return &x.engine; }, "What computes."},
    {"slots", count(1, 1024), [](pool& x) -> slot { return &x.slots; },
     "Requests that an engine runs at once."},
    {"kv_tokens", count(16, 1LL << 30U), [](pool& x) -> slot { return &x.kv_tokens; },
     "KV cells of an engine, shared by running requests and cached prefixes."},
    {"step_tokens", count(1, 1LL << 16U), [](pool& x) -> slot { return &x.step_tokens; },
     "Token budget of one step: prefill chunk and decode tokens together."},
    {"cached_prefixes", count(0, 1024), [](pool& x) -> slot { return &x.cached_prefixes; },
     "Finished sequences kept for reuse; with slots at most 254, 127 with a sliding-window model, "
     "1,024 in a simulated engine."},
    {"prefix_reuse", of(value_type::flag), [](pool& x) -> slot { return &x.prefix_reuse; },
     "Whether a request may reuse the KV of an earlier one."},
    {"threads", count(0, 1'024), [](pool& x) -> slot { return &x.threads; },
     "Compute threads of an engine; 0: as many as it has cpus, or else the machine's cores divided "
     "by "
     "its engines."},
    {"gpu_layers", count(0, 10'000), [](pool& x) -> slot { return &x.gpu_layers; },
     "Layers of the model that are kept on a GPU."},
    {"cpus", of(value_type::cpus), [](pool& x) -> slot { return &x.cpus; },
     "CPUs that its engines are bound to, dealt out evenly to those of a host, in this order; "
     "empty: "
     "all that the node may use."},
    {"memory_limit", bytes(0, 64 * 1'024 * gib), [](pool& x) -> slot { return &x.memory_limit; },
     "Of an engine's own data (RLIMIT_DATA: heap, KV, buffers; not the weights that it maps from "
     "the "
     "model's file): beyond it the engine gets no more and fails. 0: none."},
    {"core_limit", bytes(0, 64 * 1'024 * gib), [](pool& x) -> slot { return &x.core_limit; },
     "Of an engine's core file, which holds the model and clients' prompts; 0: none is written."},
    {"costs", of(value_type::path), [](pool& x) -> slot { return &x.costs_written; },
     "File of `troupe bench calibrate`, relative to the cluster file: what requests cost here, in "
     "seconds and model units. Each host needs it. Empty: by the speeds that engines measure when "
     "they are loaded."},
    {"costs_of_other_hardware", of(value_type::flag),
     [](pool& x) -> slot { return &x.costs_of_other_hardware; },
     "Take `costs` although they were calibrated on another device class; otherwise an engine "
     "refuses to serve with them."},
};

constexpr field<simulation> simulation_fields[] = {
    {"prefill_tokens_per_second", number(0, 1'000'000'000),
     [](simulation& x) -> slot { return &x.prefill_tokens_per_second; },
     "0: prefill takes no time."},
    {"decode_step_us", number(0, hour_ms * 1'000),
     [](simulation& x) -> slot { return &x.decode_step_us; },
     "Fixed part of a step, microseconds."},
    {"decode_us_per_stream", number(0, hour_ms * 1'000),
     [](simulation& x) -> slot { return &x.decode_us_per_stream; },
     "Part of a step for each stream in it, microseconds."},
    {"seed", count(0, std::numeric_limits<std::int64_t>::max()),
     [](simulation& x) -> slot { return &x.seed; },
     "Of the faults: the same seed brings the same faults."},
    {"fault_probability_per_step", number(0, 1),
     [](simulation& x) -> slot { return &x.fault_probability_per_step; },
     "How often the fault strikes."},
    {"fault", one_of(faults), [](simulation& x) -> slot { return &x.fault; }, "What goes wrong."},
    {"crash_on", of(value_type::text), [](simulation& x) -> slot { return &x.crash_on; },
     "The engine crashes when it computes a prompt that contains this text."},
};

constexpr field<gateway> gateway_fields[] = {
    {"host", required(name), [](gateway& x) -> slot { return &x.host; },
     "Host whose node serves HTTP."},
    {"address", of(value_type::address), [](gateway& x) -> slot { return &x.address; },
     "Where it listens; 0.0.0.0 for all addresses."},
    {"port", port, [](gateway& x) -> slot { return &x.port; }, "Where it listens."},
    {"server_names", of(value_type::dns_names), [](gateway& x) -> slot { return &x.server_names; },
     "Names, beside IP addresses and localhost, by which requests may address it in their Host "
     "header; others get 421. Empty: none where it listens on loopback without TLS, so that no "
     "page in a "
     "browser gets there by a name of its own; any elsewhere. \"*\": any."},
    {"certificate", of(value_type::path), [](gateway& x) -> slot { return &x.certificate_written; },
     "PEM file of the certificate that clients see, its chain behind it; with it the gateway "
     "speaks "
     "HTTPS only. Read again when it changes."},
    {"key", of(value_type::path), [](gateway& x) -> slot { return &x.key_written; },
     "PEM file of the certificate's private key."},
};

constexpr field<router> router_fields[] = {
    {"host", required(name), [](router& x) -> slot { return &x.host; },
     "Host whose node decides on routes. Of several [[router]]s each is a shard with a part of all "
     "sessions and prompts; a host may have more than one."},
    {"decode_prefills_tokens_max", count(0, 1'000'000),
     [](router& x) -> slot { return &x.decode_prefills_tokens_max; },
     "A rest of a prompt up to this is computed by the decode worker itself."},
};

constexpr field<control> control_fields[] = {
    {"host", required(name), [](control& x) -> slot { return &x.host; },
     "Host whose node decides which router shard has which sessions and prompts. While it is lost "
     "all go on as they are. Without [control] each shard has the same part, for ever."},
    {"state", required(of(value_type::path)), [](control& x) -> slot { return &x.state_written; },
     "SQLite file on that host, relative to the cluster file: how often it was started, and what "
     "it decided last. It is made if it is not there, its folder is not."},
    {"interval", duration(100, hour_ms), [](control& x) -> slot { return &x.interval; },
     "Between two looks at the shards' loads. What was lost, or has come, is seen at once."},
    {"tolerance", positive_number(10), [](control& x) -> slot { return &x.tolerance; },
     "What a shard's load may differ from the mean, in parts of it, before anything is moved."},
    {"churn_max", number(0, 1), [](control& x) -> slot { return &x.churn_max; },
     "Part of the key space that may be moved in an interval between shards that live. 0: only "
     "what "
     "a lost shard had."},
};

constexpr std::int64_t mu_max = 1'000'000'000;

constexpr field<tenant> tenant_fields[] = {
    {"name", required(name), [](tenant& x) -> slot { return &x.name; },
     "What logs, metrics and consoles call it."},
    {"keys", required(of(value_type::key_hashes)), [](tenant& x) -> slot { return &x.keys; },
     "Hashes of its API keys, which clients send as `Authorization: Bearer KEY`; `troupe key "
     "create` makes both. Several: old ones are taken out when nobody uses them any more."},
    {"models", required(of(value_type::model_names)), [](tenant& x) -> slot { return &x.models; },
     "Models that it may use; others get 403. Each needs a [[tenant.limit]]."},
    {"share_prefixes", of(value_type::flag), [](tenant& x) -> slot { return &x.share_prefixes; },
     "Its prompts find what prompts of other tenants with this setting have left in KV caches, and "
     "theirs what its own have. The time of an answer then tells whether somebody else has sent "
     "the same. Otherwise a tenant shares with nobody."},
};

constexpr field<tenant_limit> tenant_limit_fields[] = {
    {"model", required(of(value_type::model_name)),
     [](tenant_limit& x) -> slot { return &x.model; }, "Of the tenant's models."},
    {"guaranteed_mu_per_minute", positive_number(mu_max),
     [](tenant_limit& x) -> slot { return &x.guaranteed_mu_per_minute; },
     "Model units that it may always use, over all gateways: 1 MU is a request of 3,500 tokens in "
     "and 300 out."},
    {"burst_mu", positive_number(mu_max), [](tenant_limit& x) -> slot { return &x.burst_mu; },
     "Guaranteed model units that it saves up while it sends less: in any time it uses no more "
     "than the guaranteed rate gives, and this. Not set: 5 % of those of a minute."},
    {"isolated_mu_per_minute", positive_number(mu_max),
     [](tenant_limit& x) -> slot { return &x.isolated_mu_per_minute; },
     "Guaranteed model units of each gateway that is cut off from the others; the others go "
     "without them meanwhile. Not set: 5 % of guaranteed_mu_per_minute, less with more than ten "
     "gateways. No effect with one."},
    {"best_effort_weight", positive_number(1'000'000),
     [](tenant_limit& x) -> slot { return &x.best_effort_weight; },
     "Its part of what guaranteed requests leave, beside the weights of other tenants. Not set: "
     "it gets nothing above what is guaranteed."},
    {"concurrency_max", count(0, 1'000'000),
     [](tenant_limit& x) -> slot { return &x.concurrency_max; },
     "Requests that run at a time, over all gateways; others wait. 0: no limit."},
    {"priority", count(0, 100), [](tenant_limit& x) -> slot { return &x.priority; },
     "Among requests that wait, guaranteed ones go before best-effort ones, and then larger "
     "priorities before smaller ones."},
    {"wait_max", duration(0, hour_ms), [](tenant_limit& x) -> slot { return &x.wait_max; },
     "Latency objective: a request that would wait longer before it is begun is refused at once, "
     "with 429 and the time after which it would not."},
};

constexpr field<limits> limits_fields[] = {
    // A worker assembles up to 256 MiB of prompts at once: some of the longest must fit in.
    {"prompt_bytes_max", bytes(kib, 64 * mib),
     [](limits& x) -> slot { return &x.prompt_bytes_max; },
     "Prompt of a request. Its body may have a quarter more, and 256 KiB; above it 413."},
    {"header_bytes_max", bytes(kib, mib), [](limits& x) -> slot { return &x.header_bytes_max; },
     "All headers of a request; above it 431."},
    {"headers_max", count(4, 10'000), [](limits& x) -> slot { return &x.headers_max; },
     "Headers of a request; above it 431."},
    {"header_timeout", duration(10, hour_ms), [](limits& x) -> slot { return &x.header_timeout; },
     "For the headers of a request, from its first byte."},
    {"body_timeout", duration(10, hour_ms), [](limits& x) -> slot { return &x.body_timeout; },
     "For the body of a request."},
    {"idle_timeout", duration(10, 24 * hour_ms), [](limits& x) -> slot { return &x.idle_timeout; },
     "A connection without a request is closed after it."},
    {"request_timeout", duration(10, 24 * hour_ms),
     [](limits& x) -> slot { return &x.request_timeout; },
     "A request's deadline, unless its X-Request-Timeout-Ms is shorter."},
    {"drain_notice", duration(0, hour_ms), [](limits& x) -> slot { return &x.drain_notice; },
     "A node that is told to stop says so on /readyz for this long, and serves on; then its "
     "gateway "
     "closes. At least what a load balancer takes to look."},
    {"drain_timeout", duration(0, 24 * hour_ms), [](limits& x) -> slot { return &x.drain_timeout; },
     "How long a node that is stopping lets streams go on."},
    {"stream_buffer_bytes_max", bytes(4 * kib, 64 * mib),
     [](limits& x) -> slot { return &x.stream_buffer_bytes_max; }, "Unsent bytes of one client."},
    {"stalled_client_timeout", duration(10, hour_ms),
     [](limits& x) -> slot { return &x.stalled_client_timeout; },
     "A client that reads nothing while its buffer is full is dropped after it."},
    {"connections_max", count(1, 1'000'000), [](limits& x) -> slot { return &x.connections_max; },
     "Of a gateway; above it an idle one is closed for a new one, and where none is idle the new "
     "one gets 503 after a second."},
    {"requests_max", count(1, 1'000'000), [](limits& x) -> slot { return &x.requests_max; },
     "Open requests of a node; above it 503."},
    {"held_prompt_bytes_max", bytes(kib, 1'024 * gib),
     [](limits& x) -> slot { return &x.held_prompt_bytes_max; },
     "Prompts that a node keeps for failover; above it 503."},
    {"choices_max", count(1, 128), [](limits& x) -> slot { return &x.choices_max; },
     "`n` of a request."},
    {"prompts_max", count(1, 2'048), [](limits& x) -> slot { return &x.prompts_max; },
     "Prompts of one completion request."},
};

constexpr field<health> health_fields[] = {
    {"heartbeat_interval", duration(10, hour_ms),
     [](health& x) -> slot { return &x.heartbeat_interval; }, "Between two pings of a link."},
    {"heartbeat_timeout", duration(20, hour_ms),
     [](health& x) -> slot { return &x.heartbeat_timeout; },
     "A silent peer is taken for lost after it."},
    {"lease", duration(20, hour_ms), [](health& x) -> slot { return &x.lease; },
     "A job that is not renewed for so long ends by itself."},
    {"lease_renewal", duration(10, hour_ms), [](health& x) -> slot { return &x.lease_renewal; },
     "Between two renewals of a job."},
    {"report_interval", duration(10, hour_ms), [](health& x) -> slot { return &x.report_interval; },
     "Between two reports of a worker."},
    {"load_timeout", duration(100, 24 * hour_ms), [](health& x) -> slot { return &x.load_timeout; },
     "An engine that loads without progress is killed after it."},
    {"hang_timeout", duration(100, hour_ms), [](health& x) -> slot { return &x.hang_timeout; },
     "An engine that shows no sign of life inside a step for so long is killed and restarted. A "
     "job "
     "that its engine forgets for longer, while it computes for others, goes on elsewhere."},
    {"probe_after", duration(100, hour_ms), [](health& x) -> slot { return &x.probe_after; },
     "An engine where no request has got on for so long is sent a request of one token."},
    {"probe_timeout", duration(100, hour_ms), [](health& x) -> slot { return &x.probe_timeout; },
     "When two such requests in a row have no answer within it, and nothing else moves, the engine "
     "is killed and restarted."},
    {"transfer_timeout", duration(10, hour_ms),
     [](health& x) -> slot { return &x.transfer_timeout; },
     "A phase of a KV transfer without progress is given up after it."},
    {"restart_intensity", count(0, 1'000), [](health& x) -> slot { return &x.restart_intensity; },
     "Restarts of an engine within restart_period before it is left down."},
    {"restart_period", duration(100, 24 * hour_ms),
     [](health& x) -> slot { return &x.restart_period; },
     "The time over which restarts are counted."},
    {"restart_backoff_min", duration(1, hour_ms),
     [](health& x) -> slot { return &x.restart_backoff_min; }, "Before the first restart."},
    {"restart_backoff_max", duration(1, hour_ms),
     [](health& x) -> slot { return &x.restart_backoff_max; },
     "Before any restart; each doubles the wait up to it."},
};

constexpr field<transfer> transfer_fields[] = {
    {"kind", one_of(transfers), [](transfer& x) -> slot { return &x.kind; },
     "What carries KV between engines; `host` works within one process only."},
    {"buffer_bytes", bytes(mib, 64 * gib), [](transfer& x) -> slot { return &x.buffer_bytes; },
     "Registered memory of each engine."},
    {"piece_bytes_max", bytes(64 * kib, gib),
     [](transfer& x) -> slot { return &x.piece_bytes_max; }, "Longest piece that is sent at once."},
    {"tls", of(value_type::text), [](transfer& x) -> slot { return &x.tls; },
     "UCX_TLS for the engines; empty: chosen by how near the peers are."},
};

constexpr std::int64_t seconds_max = 3'600;
constexpr std::int64_t percent_max = 1'000'000;

constexpr field<calibration> calibration_fields[] = {
    {"model", required(of(value_type::model_name)), [](calibration& x) -> slot { return &x.model; },
     "What was measured."},
    {"device_class", required(of(value_type::text)),
     [](calibration& x) -> slot { return &x.device_class; }, "On what, as /debug/workers says it."},
    {"alpha", required(number(0, seconds_max)), [](calibration& x) -> slot { return &x.alpha; },
     "An engine's seconds for each prompt token that is computed."},
    {"alpha2", number(0, seconds_max), [](calibration& x) -> slot { return &x.alpha2; },
     "For each (end² - begin²) of a computed range [begin, end) of the prompt."},
    {"beta", number(0, seconds_max), [](calibration& x) -> slot { return &x.beta; },
     "For each sampled token."},
    {"beta_step", number(0, seconds_max), [](calibration& x) -> slot { return &x.beta_step; },
     "For each decode step, shared by the streams in it."},
    {"gamma", number(0, seconds_max), [](calibration& x) -> slot { return &x.gamma; },
     "For each sampled token and token of context before it."},
    {"image", number(0, seconds_max), [](calibration& x) -> slot { return &x.image; },
     "For each image token, beyond what it costs as a prompt token."},
    {"usual_batch", number(1, 1'000'000), [](calibration& x) -> slot { return &x.usual_batch; },
     "Streams in a decode step, where model units are counted."},
    {"mu_per_minute", number(0, 1'000'000'000),
     [](calibration& x) -> slot { return &x.mu_per_minute; },
     "Model units of one engine a minute within its latency objective: where it does prefill and "
     "decode, and there are tenants, requests are let in by that. 0: not known."},
    {"median_error", number(0, percent_max), [](calibration& x) -> slot { return &x.median_error; },
     "Of guesses for workloads that were not fitted, each at the batch that it had, parts of one; "
     "for people."},
    {"p90_error", number(0, percent_max), [](calibration& x) -> slot { return &x.p90_error; },
     "The same, of nine in ten."},
    {"bias", number(-1, percent_max), [](calibration& x) -> slot { return &x.bias; },
     "Of their sum; above 0: guessed too high."},
    {"usual_median_error", number(0, percent_max),
     [](calibration& x) -> slot { return &x.usual_median_error; },
     "As `median_error`, but with all of them taken to run at `usual_batch`, as model units are."},
    {"usual_p90_error", number(0, percent_max),
     [](calibration& x) -> slot { return &x.usual_p90_error; }, "The same, of nine in ten."},
    {"usual_bias", number(-1, percent_max), [](calibration& x) -> slot { return &x.usual_bias; },
     "The same, of their sum."},
};

constexpr section_name sections[] = {{"cluster", false}, {"host", true},     {"model", true},
                                     {"pool", true},     {"gateway", true},  {"router", true},
                                     {"control", false}, {"tenant", true},   {"limits", false},
                                     {"health", false},  {"transfer", false}};

std::string range(const rule& r, const char* what) {
  switch (r.type) {
  case value_type::bytes:
    return fmt::format("{} from {} to {}", what, format_bytes(static_cast<std::uint64_t>(r.min)),
                       format_bytes(static_cast<std::uint64_t>(r.max)));
  case value_type::duration:
    return fmt::format("{} from {} to {}", what, format_duration(milliseconds{r.min}),
                       format_duration(milliseconds{r.max}));
  default:
    if (r.positive) return fmt::format("{} above {}, up to {}", what, r.min, r.max);
    return fmt::format("{} from {} to {}", what, r.min, r.max);
  }
}

}  // namespace

template <>
std::span<const field<cluster>> fields<cluster>() {
  return cluster_fields;
}
template <>
std::span<const field<host>> fields<host>() {
  return host_fields;
}
template <>
std::span<const field<model>> fields<model>() {
  return model_fields;
}
template <>
std::span<const field<pool>> fields<pool>() {
  return pool_fields;
}
template <>
std::span<const field<simulation>> fields<simulation>() {
  return simulation_fields;
}
template <>
std::span<const field<gateway>> fields<gateway>() {
  return gateway_fields;
}
template <>
std::span<const field<router>> fields<router>() {
  return router_fields;
}
template <>
std::span<const field<control>> fields<control>() {
  return control_fields;
}
template <>
std::span<const field<tenant>> fields<tenant>() {
  return tenant_fields;
}
template <>
std::span<const field<tenant_limit>> fields<tenant_limit>() {
  return tenant_limit_fields;
}
template <>
std::span<const field<limits>> fields<limits>() {
  return limits_fields;
}
template <>
std::span<const field<health>> fields<health>() {
  return health_fields;
}
template <>
std::span<const field<transfer>> fields<transfer>() {
  return transfer_fields;
}

template <>
std::span<const field<calibration>> fields<calibration>() {
  return calibration_fields;
}

std::span<const section_name> section_names() { return sections; }

std::vector<bound_section> bind_all(cluster& c) {
  std::vector<bound_section> out;
  const auto once = [&](const char* name, auto& record) {
    out.push_back({name, name, fmt::format("[{}]", name), bind(record)});
  };
  const auto each = [&](const char* name, auto& records) {
    for (std::size_t i = 0; i < records.size(); ++i)
      out.push_back(
          {name, fmt::format("{}[{}]", name, i), fmt::format("[[{}]]", name), bind(records[i])});
  };
  once("cluster", c);
  each("host", c.hosts);
  each("model", c.models);
  for (std::size_t i = 0; i < c.pools.size(); ++i) {
    const auto path = fmt::format("pool[{}]", i);
    out.push_back({"pool", path, "[[pool]]", bind(c.pools[i])});
    // A pool of real engines has no simulation to print, and would not be accepted with one.
    if (c.pools[i].engine == engine_kind::simulated)
      out.push_back({"pool", path + ".simulation", "[pool.simulation]", bind(c.pools[i].sim)});
  }
  each("gateway", c.gateways);
  each("router", c.routers);
  if (c.control) once("control", *c.control);
  for (std::size_t i = 0; i < c.tenants.size(); ++i) {
    const auto path = fmt::format("tenant[{}]", i);
    out.push_back({"tenant", path, "[[tenant]]", bind(c.tenants[i])});
    for (std::size_t k = 0; k < c.tenants[i].limits.size(); ++k)
      out.push_back({"tenant", fmt::format("{}.limit[{}]", path, k), "[[tenant.limit]]",
                     bind(c.tenants[i].limits[k])});
  }
  once("limits", c.limits);
  once("health", c.health);
  once("transfer", c.transfer);
  return out;
}

std::string describe(const rule& r) {
  switch (r.type) {
  case value_type::text:
    return "a string";
  case value_type::name:
    return "a name of letters, digits, '-', '_' and inner dots, at most 63 long";
  case value_type::model_name:
    return "a name without spaces, quotes or backslashes, at most 128 long";
  case value_type::label:
    return "a name of letters, digits, '-', '_' and inner dots, or \"\"";
  case value_type::address:
    return "an IP address such as \"10.0.0.1\"";
  case value_type::path:
    return "a path as a string";
  case value_type::names:
    return "an array of names such as [\"h0\", \"h1\"]";
  case value_type::model_names:
    return "an array of one or more models' names such as [\"gemma\"]";
  case value_type::key_hashes:
    return "an array of one or more hashes of 64 hexadecimal digits, as `troupe key create` prints "
           "them";
  case value_type::dns_names:
    return "an array of names such as [\"llm.example.com\", \"*.example.org\"]";
  case value_type::cpus:
    return "an array of CPUs such as [\"0-3\", \"8\"]";
  case value_type::flag:
    return "true or false";
  case value_type::count:
    return range(r, "an integer");
  case value_type::number:
    return range(r, "a number");
  case value_type::bytes:
    return range(r, "a size such as \"64MiB\" or an integer of bytes,");
  case value_type::duration:
    return range(r, "a duration such as \"500ms\", \"10s\" or \"2m\",");
  case value_type::choice: {
    std::vector<std::string> quoted;
    for (auto word : r.choices) quoted.push_back(fmt::format("\"{}\"", word));
    return fmt::format("one of {}", fmt::join(quoted, ", "));
  }
  }
  return "a value";
}

}  // namespace troupe::config
