#include "actors/console/books.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace troupe::console {

namespace {

std::string text_of(const request_id& id) { return fmt::format("{:016x}{:016x}", id.high, id.low); }
std::string text_of(const job_key& key) {
  return fmt::format("{}/{}/{}", text_of(key.id), key.prompt, key.attempt);
}

class checker {
 public:
  checker(const std::vector<host_books>& all, bool every_host)
      : all_(all), all_answered_(every_host) {
    for (const auto& h : all_) {
      if (h.has_hub) hubs_[h.host] = &h.hub;
      for (const auto& s : h.shards) shards_[s] = &h;
      for (const auto& e : h.engines) engines_[{e.worker, e.generation}] = &e;
      all_answered_ = all_answered_ && h.silent.empty();
    }
  }

  std::vector<std::string> run() {
    for (const auto& h : all_) {
      for (const auto& who : h.silent) say("{} did not answer: what it holds is unknown", who);
      if (h.has_hub) hub(h);
      for (const auto& e : h.engines) engine(e);
    }
    for (const auto& h : all_)
      if (!h.shards.empty()) shards_of(h);
    std::sort(lines_.begin(), lines_.end());
    return std::move(lines_);
  }

 private:
  template <class... Args>
  void say(fmt::format_string<Args...> text, Args&&... args) {
    lines_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }

  void hub(const host_books& h) {
    if (h.hub.left_out > 0)
      return say("requests/{}: too many holdings to compare one by one", h.host);
    // A request that has been let in has its place before the hub hears of it, so that they may
    // differ by what is in its mailbox; at rest they don't.
    if (h.hub.requests.empty() && h.hub.tickets > 0)
      say("requests/{}: {} places are taken, and no request is open", h.host, h.hub.tickets);
    if (h.hub.requests.empty() && h.hub.prompt_bytes > 0)
      say("requests/{}: {} prompt bytes are held, and no request is open", h.host,
          h.hub.prompt_bytes);
    std::set<request_id> open(h.hub.requests.begin(), h.hub.requests.end());
    for (const auto& [worker, keys] : h.hub.jobs) {
      const auto e = engines_.find(worker);
      for (const auto& key : keys) {
        if (!open.contains(key.id))
          say("job {} at {}: requests/{} holds it, and has no such request", text_of(key),
              worker.first, h.host);
        if (e == engines_.end())
          say("job {} at {}: requests/{} holds it, and that incarnation of the worker is not there",
              text_of(key), worker.first, h.host);
        else if (whole(*e->second) && !has(e->second->keys, key))
          say("job {} at {}: requests/{} holds it, and the worker doesn't know it", text_of(key),
              worker.first, h.host);
      }
    }
    for (const auto& [shard, lease] : h.hub.leases) {
      const auto s = shards_.find(shard);
      if (s == shards_.end()) {
        // Where somebody was silent it may have been its host, or itself.
        if (all_answered_)
          say("lease {:016x}: requests/{} holds it, and {}, which granted it, is nowhere", lease,
              h.host, shard);
        continue;
      }
      if (s->second->leases_left_out > 0) continue;
      const auto& given = s->second->leases;
      if (std::none_of(given.begin(), given.end(), [&, id = lease, by = shard](const auto& l) {
            return l.id == id && l.shard == by && l.host == h.host;
          }))
        say("lease {:016x}: requests/{} holds it, and {} doesn't know it", lease, h.host, shard);
    }
  }

  void shards_of(const host_books& at) {
    if (at.leases_left_out > 0)
      return say("shards of {}: too many leases to compare one by one", at.host);
    for (const auto& l : at.leases) {
      const auto hub = hubs_.find(l.host);
      if (hub == hubs_.end()) {
        if (knows_host(l.host))
          say("lease {:016x}: {} gave it to requests/{}, which is not there", l.id, l.shard,
              l.host);
        else
          say("lease {:016x}: {} gave it to host {}, which did not answer", l.id, l.shard, l.host);
      } else if (hub->second->left_out == 0 &&
                 !has(hub->second->leases, std::pair{l.shard, l.id})) {
        say("lease {:016x}: {} gave it to requests/{}, which doesn't hold it", l.id, l.shard,
            l.host);
      }
    }
  }

  void engine(const host_books::engine_part& e) {
    for (const auto& line : e.mismatches) say("{}: {}", e.worker, line);
    if (e.mismatches.empty() && e.ledger_tokens != e.engine_cells)
      say("{}: the ledger has {} KV tokens, the engine has {}", e.worker, e.ledger_tokens,
          e.engine_cells);
    if (!whole(e)) return say("{}: too many jobs to compare one by one", e.worker);
    if (e.keys.empty() && e.jobs > 0)
      say("{}: the engine has {} jobs, the worker has none", e.worker, e.jobs);
    if (e.keys.empty() && e.referenced > 0)
      say("{}: {} KV tokens are referenced, and there is no job", e.worker, e.referenced);
    if (e.keys.empty() && e.transfers > 0)
      say("{}: {} hand-overs are open, and there is no job", e.worker, e.transfers);
    // Early opens are left out: they wait for a job that never came, until their time is over.
    if (e.keys.empty() && e.buffers_free < e.buffers)
      say("{}: {} of {} transfer buffers are in use, and there is no job", e.worker,
          e.buffers - e.buffers_free, e.buffers);
    if (e.keys.empty() && e.assembling_bytes > 0)
      say("{}: {} bytes of prompts are held for further parts, and there is no job", e.worker,
          e.assembling_bytes);
    for (const auto& key : e.keys) {
      const auto held = std::any_of(hubs_.begin(), hubs_.end(), [&](const auto& h) {
        const auto i = h.second->jobs.find({e.worker, e.generation});
        return h.second->left_out > 0 || (i != h.second->jobs.end() && has(i->second, key));
      });
      if (!held) say("job {} at {}: no request holds it", text_of(key), e.worker);
    }
  }

  static bool whole(const host_books::engine_part& e) { return e.keys.size() == e.key_count; }
  template <class T>
  static bool has(const std::vector<T>& list, const T& x) {
    return std::find(list.begin(), list.end(), x) != list.end();
  }
  bool knows_host(const std::string& name) const {
    return std::any_of(all_.begin(), all_.end(), [&](const auto& h) { return h.host == name; });
  }

  const std::vector<host_books>& all_;
  std::map<std::string, const host_books::hub_part*> hubs_;
  std::map<std::string, const host_books*> shards_;  ///< where they are
  std::map<std::pair<std::string, std::uint64_t>, const host_books::engine_part*> engines_;
  bool all_answered_;
  std::vector<std::string> lines_;
};

}  // namespace

bool held_in_all::zero() const {
  return requests == 0 && prompt_bytes == 0 && leases == 0 && router_leases == 0 && jobs == 0 &&
         worker_jobs == 0 && engine_jobs == 0 && transfers == 0 && early_opens == 0 &&
         buffers == 0 && assembling_bytes == 0 && kv_tokens == 0;
}

held_in_all sum(const std::vector<host_books>& all) {
  held_in_all s;
  for (const auto& h : all) {
    // Whichever is more: a place without a request is held, too.
    s.requests += std::max<std::size_t>(h.hub.requests.size(), h.hub.tickets);
    s.prompt_bytes += h.hub.prompt_bytes;
    s.leases += h.hub.leases.size();
    s.router_leases += h.leases.size() + h.leases_left_out;
    for (const auto& [worker, keys] : h.hub.jobs) s.jobs += keys.size();
    s.jobs += h.hub.left_out;
    for (const auto& e : h.engines) {
      s.worker_jobs += e.key_count;
      s.engine_jobs += e.jobs;
      s.transfers += e.transfers;
      s.early_opens += e.early_opens;
      s.buffers += e.buffers - std::min(e.buffers, e.buffers_free);
      s.assembling_bytes += e.assembling_bytes;
      s.kv_tokens += e.referenced;
    }
  }
  return s;
}

std::vector<std::string> check_books(const std::vector<host_books>& all, bool every_host) {
  return checker(all, every_host).run();
}

std::vector<std::string> lasting(const std::vector<std::string>& first,
                                 const std::vector<std::string>& second) {
  std::vector<std::string> out;
  for (const auto& line : second)
    if (std::find(first.begin(), first.end(), line) != first.end()) out.push_back(line);
  return out;
}

}  // namespace troupe::console
