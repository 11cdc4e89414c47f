#pragma once

#include "config/cluster.hpp"
#include "config/problem.hpp"

#include <vector>

namespace troupe::config {

/// Sequences that one llama engine can hold at most, running and cached together (llama.cpp's limit
/// is 256; two are the runner's scratch).
inline constexpr std::uint32_t sequences_max = 254;
/// The same of a simulated one; its worker has jobs for as many again that wait.
inline constexpr std::uint32_t simulated_sequences_max = 1'024;
/// Engines of all pools on one host.
inline constexpr std::uint32_t engines_per_host_max = 64;
/// Hosts of a cluster: every node is linked to every other.
inline constexpr std::size_t hosts_max = 256;
/// API keys of a tenant that hold at the same time.
inline constexpr std::size_t keys_per_tenant_max = 64;
/// Router shards, whose names and keys must fit into one message.
inline constexpr std::size_t routers_max = 64;
/// Records of one other section ([[model]], [[pool]], [[gateway]], [[tenant]]). With
/// more of them, or of hosts, only that is said: what follows would look at each pair.
inline constexpr std::size_t records_max = 1'024;

/// What no single value shows: references that lead nowhere, contradictions between sections,
/// settings without effect. A pure function; values that could not be read stand at their defaults
/// and are not complained about again.
std::vector<problem> check(const cluster& c);

/// Whether links between hosts use TLS by the cluster's certificates.
bool links_use_tls(const cluster& c);
/// The same of consoles at this host.
bool console_uses_tls(const cluster& c, const host& h);

/// What is allowed by the file, and yet to be said at each check and start.
std::vector<problem> warnings(const cluster& c);

}  // namespace troupe::config
