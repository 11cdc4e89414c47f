#include "actors/router/shard_state.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

namespace troupe::router {

namespace {

constexpr std::uint16_t no_worker = 65'535;
constexpr std::size_t words_per_session = 16;

using sessions_part = std::span<const session_book::moving>;

expected<msg::envelope<msg::ShardState>> make_state(const msg::address& from,
                                                    const control::assignment_number& by,
                                                    sessions_part part) {
  std::vector<const std::string*> names;
  std::unordered_map<std::string, std::uint16_t> places;
  const auto place_of = [&](const std::string& worker) {
    if (worker.empty()) return no_worker;
    const auto [i, fresh] = places.try_emplace(worker, static_cast<std::uint16_t>(names.size()));
    if (fresh) names.push_back(&i->first);
    return i->second;
  };
  msg::draft<msg::ShardState> d{1'024 + part.size() * words_per_session * sizeof(std::uint64_t)};
  d->setFromShard(from.name);
  d->setFromGeneration(from.generation);
  d->setTerm(by.term);
  d->setGeneration(by.generation);
  auto out = d->initSessions(static_cast<unsigned>(part.size()));
  for (unsigned i = 0; i < out.size(); ++i) {
    out[i].setKey(part[i].shard_key);
    out[i].setSession(part[i].session);
    out[i].setPrefill(place_of(part[i].used.prefill));
    out[i].setDecode(place_of(part[i].used.decode));
  }
  auto workers = d->initWorkers(static_cast<unsigned>(names.size()));
  for (unsigned i = 0; i < workers.size(); ++i) workers.set(i, *names[i]);
  return std::move(d).freeze();
}

}  // namespace

expected<std::vector<msg::envelope<msg::ShardState>>> make_states(
    const msg::address& from, const control::assignment_number& by,
    const std::vector<session_book::moving>& sessions) {
  std::vector<msg::envelope<msg::ShardState>> all;
  for (std::size_t at = 0; at < sessions.size(); at += sessions_per_state_max) {
    auto e = make_state(from, by,
                        sessions_part{sessions}.subspan(
                            at, std::min(sessions_per_state_max, sessions.size() - at)));
    if (!e) return std::move(e).error();
    all.push_back(*std::move(e));
  }
  return all;
}

std::vector<session_book::moving> read(msg::ShardState::Reader in) {
  std::vector<std::string> workers;
  for (auto name : in.getWorkers()) workers.emplace_back(name.cStr());
  std::vector<session_book::moving> all;
  for (auto s : in.getSessions()) {
    const auto prefill = s.getPrefill(), decode = s.getDecode();
    if (decode >= workers.size() || (prefill != no_worker && prefill >= workers.size())) continue;
    all.push_back({s.getSession(),
                   s.getKey(),
                   {prefill == no_worker ? "" : workers[prefill], workers[decode]}});
  }
  return all;
}

}  // namespace troupe::router
