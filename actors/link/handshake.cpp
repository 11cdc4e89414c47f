#include "actors/link/handshake.hpp"

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

namespace troupe::link {

process_id random_process_id() {
  process_id id;
  if (RAND_bytes(id.data(), static_cast<int>(id.size())) != 1)
    throw std::runtime_error("no random bytes from the operating system");
  return id;
}

std::string to_hex(const process_id& id) {
  std::string out;
  for (auto b : id) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", b);
    out += two;
  }
  return out;
}

msg::envelope<msg::Hello> make_hello(const identity& self) {
  msg::draft<msg::Hello> d;
  d->setClusterId(self.cluster_id);
  d->setProtocolMin(protocol_version_min);
  d->setProtocolMax(self.protocol_max);
  d->setProcessId(kj::arrayPtr(self.process.data(), self.process.size()));
  d->setKind(self.kind);
  d->setHost(self.host);
  d->setEngine(self.engine);
  d->setGeneration(self.generation);
  const auto config = self.config->get();
  d->setConfigGeneration(config.generation);
  auto sections = d->initConfigSections(static_cast<unsigned>(config.sections.size()));
  unsigned i = 0;
  for (const auto& [key, digest] : config.sections) {
    sections[i].setKey(key);
    sections[i].setDigest(digest);
    ++i;
  }
  d->setBuild("troupe " TROUPE_VERSION);
  // A node keeps its secret: only its own engines prove something by it.
  if (self.kind == msg::ProcessKind::ENGINE)
    d->setSecret(kj::arrayPtr(self.secret.data(), self.secret.size()));
  return std::move(d).freeze().value();
}

std::vector<std::string> config_skew(const std::map<std::string, std::uint64_t>& ours,
                                     const std::map<std::string, std::uint64_t>& theirs) {
  std::vector<std::string> keys;
  for (const auto& [key, digest] : ours) {
    auto i = theirs.find(key);
    if (i == theirs.end() || i->second != digest) keys.push_back(key);
  }
  for (const auto& [key, digest] : theirs)
    if (!ours.contains(key)) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

namespace {

expected<void> check_engine(const identity& self, msg::Hello::Reader hello) {
  auto secret = hello.getSecret();
  // Sizes are no secret; contents are compared in constant time.
  if (self.secret.empty() || secret.size() != self.secret.size() ||
      CRYPTO_memcmp(secret.begin(), self.secret.data(), secret.size()) != 0)
    return error{"bad_secret",
                 "an engine that claims to be '" + std::string{hello.getEngine().cStr()} +
                     "' does not know this start's secret: it is no child of this node"};
  return ok;
}

}  // namespace

expected<peer_info> judge(const identity& self, msg::Hello::Reader hello,
                          const std::vector<std::string>& known_hosts) {
  peer_info peer;
  peer.kind = hello.getKind();
  peer.host = hello.getHost().cStr();
  peer.engine = hello.getEngine().cStr();
  peer.generation = hello.getGeneration();
  auto id = hello.getProcessId();
  if (id.size() != peer.process.size())
    return error{"malformed_hello",
                 "a peer sent a process id of " + std::to_string(id.size()) + " bytes"};
  std::copy(id.begin(), id.end(), peer.process.begin());
  if (peer.process == self.process)
    return error{
        "self_connection",
        "host '" + peer.host +
            "' connected to itself: two hosts of the cluster file have the same address and port"};
  if (std::string cluster = hello.getClusterId(); cluster != self.cluster_id)
    return error{"other_cluster", "host '" + peer.host + "' belongs to cluster '" + cluster +
                                      "', this is cluster '" + self.cluster_id + "'"};
  const auto common_max = std::min(self.protocol_max, hello.getProtocolMax());
  const auto common_min = std::max(protocol_version_min, hello.getProtocolMin());
  if (common_min > common_max)
    return error{"protocol_mismatch",
                 "host '" + peer.host + "' (" + std::string{hello.getBuild().cStr()} +
                     ") speaks protocol " + std::to_string(hello.getProtocolMin()) + " to " +
                     std::to_string(hello.getProtocolMax()) + ", this node " +
                     std::to_string(protocol_version_min) + " to " +
                     std::to_string(self.protocol_max)};
  peer.protocol = common_max;
  if (peer.kind == msg::ProcessKind::ENGINE) {
    if (auto trusted = check_engine(self, hello); !trusted) return std::move(trusted).error();
  } else if (peer.kind == msg::ProcessKind::NODE) {
    if (std::find(known_hosts.begin(), known_hosts.end(), peer.host) == known_hosts.end())
      return error{"unknown_host", "a node calls itself host '" + peer.host +
                                       "', which this node's cluster file does not have"};
    if (peer.host == self.host && self.kind == msg::ProcessKind::NODE)
      return error{"duplicate_host", "another node calls itself host '" + peer.host +
                                         "', too: each host of the cluster file is one node"};
  } else {
    return error{"malformed_hello", "a peer does not say what kind of process it is"};
  }
  std::map<std::string, std::uint64_t> theirs;
  for (auto s : hello.getConfigSections()) theirs[s.getKey()] = s.getDigest();
  const auto ours = self.config->get();
  peer.skew = config_skew(ours.sections, theirs);
  if (!peer.skew.empty() && hello.getConfigGeneration() != ours.generation)
    peer.behind = hello.getConfigGeneration() < ours.generation ? peer.host : self.host;
  return peer;
}

}  // namespace troupe::link
