#include "actors/directory/directory_state.hpp"

#include <utility>

namespace troupe::directory {

entry read(msg::Entry::Reader in) {
  entry e;
  e.name = in.getName().cStr();
  e.generation = in.getGeneration();
  e.role = in.getRole();
  e.state = in.getState();
  e.pool = in.getPool().cStr();
  e.model = in.getModel().cStr();
  e.host = in.getHost().cStr();
  auto address = in.getTransferAddress();
  e.transfer_address.assign(address.begin(), address.end());
  e.transfer_kind = in.getTransferKind().cStr();
  e.slots = in.getSlots();
  e.kv_tokens = in.getKvTokens();
  e.kv_bytes_per_token = in.getKvBytesPerToken();
  e.context_tokens = in.getContextTokens();
  e.detail = in.getDetail().cStr();
  e.slow = in.getSlow().cStr();
  e.device_class = in.getDeviceClass().cStr();
  e.prefill_speed = in.getPrefillSpeed();
  e.decode_speed = in.getDecodeSpeed();
  return e;
}

void write(msg::Entry::Builder out, const entry& in) {
  out.setName(in.name);
  out.setGeneration(in.generation);
  out.setRole(in.role);
  out.setState(in.state);
  out.setPool(in.pool);
  out.setModel(in.model);
  out.setHost(in.host);
  out.setTransferAddress(kj::arrayPtr(in.transfer_address.data(), in.transfer_address.size()));
  out.setTransferKind(in.transfer_kind);
  out.setSlots(in.slots);
  out.setKvTokens(in.kv_tokens);
  out.setKvBytesPerToken(in.kv_bytes_per_token);
  out.setContextTokens(in.context_tokens);
  out.setDetail(in.detail);
  out.setSlow(in.slow);
  out.setDeviceClass(in.device_class);
  out.setPrefillSpeed(in.prefill_speed);
  out.setDecodeSpeed(in.decode_speed);
}

directory_state::directory_state(std::string own_host, process_id own_process)
    : own_host_(std::move(own_host)) {
  hosts_[own_host_].process = std::move(own_process);
}

change directory_state::set_own(entry e) {
  auto& own = hosts_[own_host_];
  e.host = own_host_;
  auto& current = own.entries[e.name];
  // A late word of an older incarnation must not overwrite the newer one.
  if (current.generation > e.generation || current == e) return {};
  current = e;
  ++own.version;
  return {{std::move(e)}, {}};
}

change directory_state::remove_own(const std::string& name, std::uint64_t generation) {
  auto& own = hosts_[own_host_];
  auto i = own.entries.find(name);
  if (i == own.entries.end() || i->second.generation != generation) return {};
  change c;
  c.removed.push_back(std::move(i->second));
  own.entries.erase(i);
  ++own.version;
  return c;
}

change directory_state::merge(msg::DirectoryUpdate::Reader update) {
  const std::string host = update.getHost().cStr();
  if (host == own_host_ || host.empty()) return {};  // nobody else speaks for us
  // A bad pointer throws here, before anything has changed.
  auto id = update.getProcessId();
  process_id process(id.begin(), id.end());
  std::map<std::string, entry> next;
  for (auto e : update.getEntries()) {
    auto x = read(e);
    x.host = host;
    next[x.name] = std::move(x);
  }
  auto& set = hosts_[host];
  if (process == set.process && update.getVersion() <= set.version) return {};
  change c;
  for (const auto& [name, e] : next) {
    auto i = set.entries.find(name);
    if (i == set.entries.end() || !(i->second == e)) c.added_or_changed.push_back(e);
  }
  for (auto& [name, e] : set.entries)
    if (!next.contains(name)) c.removed.push_back(e);
  set.process = std::move(process);
  set.version = update.getVersion();
  set.entries = std::move(next);
  return c;
}

change directory_state::lose_host(const std::string& host) {
  auto i = hosts_.find(host);
  if (i == hosts_.end() || host == own_host_) return {};
  change c;
  for (auto& [name, e] : i->second.entries) c.removed.push_back(std::move(e));
  hosts_.erase(i);
  return c;
}

msg::envelope<msg::DirectoryUpdate> directory_state::own_update() const {
  const auto& own = hosts_.at(own_host_);
  msg::draft<msg::DirectoryUpdate> d{4096};
  d->setHost(own_host_);
  d->setProcessId(kj::arrayPtr(own.process.data(), own.process.size()));
  d->setVersion(own.version);
  auto entries = d->initEntries(static_cast<unsigned>(own.entries.size()));
  unsigned i = 0;
  for (const auto& [name, e] : own.entries) write(entries[i++], e);
  return std::move(d).freeze().value();
}

std::shared_ptr<const snapshot> directory_state::all() const {
  auto result = std::make_shared<snapshot>();
  for (const auto& [host, set] : hosts_) result->insert(set.entries.begin(), set.entries.end());
  return result;
}

}  // namespace troupe::directory
