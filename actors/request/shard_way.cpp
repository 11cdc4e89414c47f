#include "actors/request/shard_way.hpp"

#include "actors/control/shard_key.hpp"

#include <algorithm>
#include <cstddef>

namespace troupe::request {

namespace {

/// Blocks of a prompt that tell conversations apart, as in the choice of workers: what all prompts
/// of a workload begin with is mostly shorter.
constexpr std::size_t conversation_block = 7;

/// A shard that drains is about to end.
bool routes(msg::EntryState s) {
  return s == msg::EntryState::READY || s == msg::EntryState::STARTING;
}

/// A request's id is random.
std::uint64_t number_of(const request_id& id, std::uint16_t prompt) {
  return id.high ^ (id.low + prompt) * 0x9E37'79B9'7F4A'7C15ULL;
}

}  // namespace

std::string session_name(const submission& s) {
  return s.session.empty() || s.tenant.empty() ? s.session : s.tenant + "/" + s.session;
}

shard_way find_way(const submission& s, std::uint16_t prompt) {
  const auto& chain = s.prompts[prompt]->chain;
  const auto session = session_name(s);
  const auto otherwise = number_of(s.id, prompt);
  shard_way w;
  w.key = control::shard_key(s.model, session, chain, otherwise);
  // A session's key is of that session alone; a first block may begin many conversations.
  w.draw = !session.empty() ? w.key
           : chain.empty()  ? otherwise
                            : chain[std::min(chain.size() - 1, conversation_block)];
  return w;
}

shard_way quarantine_way(const std::string& model) {
  const auto key = control::shard_key(model, {}, {}, 0);
  return {key, key};
}

void silent_shards::note(const std::string& shard, time_point asked, time_point now) {
  const std::lock_guard lock{mutex_};
  auto& w = all_[shard];
  if (w.heard <= asked) w.rests_until = now + silent_shard_rest;
}

void silent_shards::heard(const std::string& shard, time_point now) {
  const std::lock_guard lock{mutex_};
  all_[shard] = {now, time_point::min()};
}

bool silent_shards::rests(const std::string& shard, time_point now) const {
  const std::lock_guard lock{mutex_};
  const auto i = all_.find(shard);
  return i != all_.end() && now < i->second.rests_until;
}

chosen_shard choose_shard(const control::shard_map& map, const directory::snapshot& all,
                          const silent_shards& silent, const shard_way& way, std::uint32_t tried,
                          silent_shards::time_point now) {
  const auto a = map.get();
  const auto nth = [&](std::uint32_t n) -> const std::string& {
    return control::choose_shard(*a, all, way.key, way.draw, n);
  };
  const auto chosen = [&](const std::string& name) -> chosen_shard {
    const auto e = all.find(name);
    return {name, e == all.end() ? 0 : e->second.generation, a->number()};
  };
  const auto& first = nth(tried);
  if (!silent.rests(first, now)) return chosen(first);
  for (std::uint32_t more = 1; more < a->shards().size(); ++more)
    if (const auto& other = nth(tried + more); !silent.rests(other, now)) return chosen(other);
  return chosen(first);
}

std::optional<chosen_shard> other_shard(const control::shard_map& map,
                                        const directory::snapshot& all, const silent_shards& silent,
                                        const shard_way& way,
                                        const std::vector<std::string>& refused,
                                        silent_shards::time_point now) {
  const auto a = map.get();
  const auto unasked = [&](const std::string& name) -> std::optional<chosen_shard> {
    const auto e = all.find(name);
    if (e == all.end() || !routes(e->second.state) || silent.rests(name, now) ||
        std::find(refused.begin(), refused.end(), name) != refused.end())
      return std::nullopt;
    return chosen_shard{name, e->second.generation, a->number()};
  };
  for (std::uint32_t n = 0; n < a->shards().size(); ++n)
    if (auto s = unasked(control::choose_shard(*a, all, way.key, way.draw, n))) return s;
  // Among the ready ones only, as long as there is one.
  for (const auto& name : a->shards())
    if (auto s = unasked(name)) return s;
  return std::nullopt;
}

}  // namespace troupe::request
