#include "actors/router/router_policy.hpp"
#include "tools/bench/router/measure.hpp"

#include <fmt/format.h>

#include <random>

namespace troupe::bench {

namespace {

constexpr std::size_t workers_per_host = 8, hosts_per_rack = 16, racks_per_zone = 16;

struct fleet {
  std::map<std::string, topology::place> places;
  std::vector<directory::entry> entries;

  fleet(std::size_t workers, bool apart) {
    for (std::size_t i = 0; i < workers; ++i) {
      const auto h = i / workers_per_host, rack = h / hosts_per_rack, zone = rack / racks_per_zone;
      directory::entry e;
      e.host = fmt::format("h{}", h);
      places[e.host] = {"r", fmt::format("z{}", zone), fmt::format("k{}", rack), e.host};
      e.role = !apart ? msg::Role::BOTH : i % 2 == 0 ? msg::Role::PREFILL : msg::Role::DECODE;
      e.name = fmt::format("{}/pool/{}.{}",
                           !apart       ? "both"
                           : i % 2 == 0 ? "prefill"
                                        : "decode",
                           e.host, i % workers_per_host);
      e.generation = 7;
      e.state = msg::EntryState::READY;
      e.model = "model";
      e.slots = 64;
      e.kv_tokens = 1'000'000;
      e.kv_bytes_per_token = 100'000;
      e.transfer_address.resize(120);
      entries.push_back(std::move(e));
    }
  }
};

}  // namespace

void bench_decisions(const setup& s, bool apart) {
  const fleet all{s.workers, apart};
  router::router_policy policy{{}, all.places, {"model"}, 1};
  policy.update({all.entries, {}});
  std::mt19937_64 random{s.seed};
  auto now = router::time_point{std::chrono::hours{1}};
  for (const auto& e : all.entries) {
    router::worker_report r;
    r.running = random() % 32;
    r.queued_tokens = random() % 8'000;
    r.kv_total = e.kv_tokens;
    r.kv_used = random() % e.kv_tokens;
    r.bytes_per_token = 4;
    policy.report(e.name, e.generation, r, now);
  }
  // Prompts go where the policy sends them, and what is computed there is told.
  const auto prompts = s.blocks / (s.chain_blocks - s.shared_blocks);
  std::map<std::string, std::uint64_t> sequence;
  auto query = [&](std::uint64_t p) {
    router::route_query q;
    q.now = now;
    q.draw = random();
    q.host = "h1";
    q.model = "model";
    q.workload = fmt::format("tenant-{}", p % 100);
    q.chain = chain_of(p, s);
    q.prompt_bytes = static_cast<std::uint32_t>(s.chain_blocks * 512 + 200);
    q.max_tokens = 256;
    if (p % 2 == 0) q.session = fmt::format("session-{}", p);
    return q;
  };
  std::uint64_t refused = 0;
  for (std::uint64_t p = 0; p < prompts; ++p) {
    const auto q = query(p);
    const auto answer = policy.decide(q);
    const auto* c = std::get_if<router::route_choice>(&answer);
    if (!c) {
      ++refused;
      continue;
    }
    for (const auto* w : {&c->prefill, &c->decode})
      if (!w->name.empty())
        (void)policy.prefixes(w->name, w->generation, sequence[w->name]++, false, q.chain, {});
    policy.release(c->lease);
  }
  std::vector<std::uint32_t> times;
  for (int n = 0; n < 100'000; ++n) {
    now += std::chrono::microseconds{300};
    const auto q = query(random() % prompts);
    const auto start = clock::now();
    const auto answer = policy.decide(q);
    times.push_back(static_cast<std::uint32_t>((clock::now() - start).count()));
    if (const auto* c = std::get_if<router::route_choice>(&answer))
      policy.release(c->lease);
    else
      ++refused;
  }
  const auto t = of(times);
  fmt::print("decision, {} workers ({}), {} blocks, subsets of {}, prompts of {} blocks: median "
             "{:.2f} us, p99 {:.2f}, p99.9 {:.2f}, max {:.0f}; refused {}\n",
             s.workers, apart ? "prefill and decode apart" : "both", policy.index().blocks(),
             router::worker_subsets::decision_workers_max, s.chain_blocks, t.median_us, t.p99_us,
             t.p999_us, t.max_us, refused);
}

}  // namespace troupe::bench
