#include "actors/control/assigner.hpp"
#include "actors/control/shard_map.hpp"
#include "actors/request/shard_way.hpp"
#include "actors/router/load_book.hpp"
#include "actors/router/shard_name.hpp"
#include "tools/bench/router/measure.hpp"
#include "tools/bench/router/trace_fleet.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <random>
#include <unordered_set>

namespace troupe::bench {

namespace {

constexpr double step_seconds = 0.01, report_seconds = 1, window_seconds = 60;
constexpr double counted_utilisation = 0.5;  ///< windows with less say nothing about balance
constexpr const char* model = "model";

std::vector<trace_request> read_trace(const std::string& path) {
  std::vector<trace_request> all;
  simdjson::padded_string text;
  if (simdjson::padded_string::load(path).get(text) != simdjson::SUCCESS) return all;
  simdjson::dom::parser parser;
  simdjson::dom::document_stream lines;
  if (parser.parse_many(text).get(lines) != simdjson::SUCCESS) return all;
  for (auto line : lines) {
    simdjson::dom::object o;
    if (line.get(o) != simdjson::SUCCESS) return {};
    auto number = [&](const char* key) {
      std::uint64_t x = 0;
      return o[key].get(x) == simdjson::SUCCESS ? x : 0;
    };
    trace_request r{number("timestamp"),
                    static_cast<std::uint32_t>(number("input_length")),
                    static_cast<std::uint32_t>(std::max<std::uint64_t>(1, number("output_length"))),
                    {}};
    simdjson::dom::array ids;
    if (r.input == 0 || o["hash_ids"].get(ids) != simdjson::SUCCESS) return {};
    for (auto id : ids) {
      std::uint64_t x = 0;
      if (id.get(x) == simdjson::SUCCESS) r.blocks.push_back(static_cast<std::uint32_t>(x));
    }
    all.push_back(std::move(r));
  }
  return all;
}

std::string name_of(std::size_t worker) { return fmt::format("both/pool/h{}.0", worker); }

/// Chooses a worker for each request, and hears of what becomes of them.
struct chooser {
  virtual ~chooser() = default;
  virtual std::size_t choose(const trace_request& r, std::uint64_t tag, double now) = 0;
  virtual void ended(std::uint64_t) {}
  virtual void report(std::size_t, const router::worker_report&, double) {}
  /// What the control host does at the end of its interval.
  virtual void interval(double) {}
  virtual void events(std::size_t, const std::vector<std::uint64_t>&,
                      const std::vector<std::uint64_t>&) {}
};

/// Requests find their shard by key, as a gateway's do, and the control host's assigner moves keys.
struct shards final : chooser {
  struct granted {
    std::size_t shard = 0;
    std::uint64_t lease = 0;
  };
  std::vector<std::unique_ptr<router::router_policy>> policies;
  std::vector<std::uint64_t> sequence;
  std::unordered_map<std::uint64_t, granted> leases;
  std::unordered_map<std::string, std::size_t> by_name;
  std::mt19937_64 random;
  bool prefixes;
  std::shared_ptr<const control::assignment> assigned;
  std::vector<router::load_book> loads;  ///< of each shard
  directory::snapshot ready;
  std::map<std::string, std::size_t> shard_by_name;
  double churn = 0;            ///< of the key space, in all
  std::vector<double> uneven;  ///< the hottest shard's load over the mean, at each interval

  shards(std::size_t n, std::size_t workers, const capacity::cost_model& costs, bool knows_prefixes,
         const trace_setup& how)
      : sequence(workers), random(how.seed), prefixes(knows_prefixes),
        assigned(std::make_shared<const control::assignment>(
            control::assignment::uniform(router::shard_names(n)))),
        loads(n, router::load_book{assigned}) {
    directory::change all;
    std::map<std::string, topology::place> places;
    for (std::size_t i = 0; i < workers; ++i) {
      directory::entry e;
      e.name = name_of(i);
      e.generation = 1;
      e.role = msg::Role::BOTH;
      e.state = msg::EntryState::READY;
      e.model = model;
      e.pool = "pool";
      e.host = fmt::format("h{}", i);
      places[e.host] = {"", "", "k", e.host};
      by_name[e.name] = i;
      all.added_or_changed.push_back(std::move(e));
    }
    router::router_limits limits;
    limits.shards = static_cast<std::uint32_t>(n);
    if (how.others_weight >= 0) limits.others_weight = how.others_weight;
    for (const auto& name : router::shard_names(n)) {
      shard_by_name[name] = policies.size();
      ready[name].name = name;
      ready[name].state = msg::EntryState::READY;
      policies.push_back(std::make_unique<router::router_policy>(
          limits, places, std::vector<std::string>{model}, 1));
      policies.back()->set_costs("pool", costs);
      policies.back()->update(all);
    }
  }
  static router::time_point at(double now) {
    return router::time_point{std::chrono::microseconds{static_cast<std::int64_t>(now * 1e6)}};
  }
  std::size_t choose(const trace_request& r, std::uint64_t tag, double now) override {
    auto chain = chain_of(r);
    const auto way = way_of(chain);
    const auto s = shard_by_name.at(control::choose_shard(*assigned, ready, way.key, way.draw, 0));
    router::route_query q;
    q.now = at(now);
    q.draw = random();
    q.model = model;
    q.prompt_bytes = r.input * 4;
    if (policies.size() > 1) q.shard_key = way.key;
    if (prefixes) q.chain = std::move(chain);
    const auto answer = policies[s]->decide(q);
    const auto& c = std::get<router::route_choice>(answer);
    loads[s].note(way.key, c.granted_seconds, q.now);
    leases[tag] = {s, c.lease};
    return by_name.at(c.decode.name);
  }
  request::shard_way way_of(const std::vector<std::uint64_t>& chain) {
    auto content = std::make_shared<request::prompt_content>();
    content->chain = chain;
    request::submission s;
    s.id = {random(), random()};
    s.model = model;
    s.prompts = {std::move(content)};
    return request::find_way(s, 0);
  }
  void interval(double now) override {
    if (policies.size() == 1) return;
    std::vector<control::range_load> ranges;
    std::vector<control::key_load> keys;
    std::vector<control::shard_state> states;
    for (const auto& l : loads) {
      control::shard_load told;
      l.tell(told, at(now));
      ranges.insert(ranges.end(), told.ranges.begin(), told.ranges.end());
      keys.insert(keys.end(), told.keys.begin(), told.keys.end());
    }
    for (const auto& name : assigned->shards()) states.push_back({name, true});
    auto number = assigned->number();
    ++number.generation;
    auto round = control::assign(*assigned, states, {ranges, keys}, {}, number);
    churn += round.churn;
    uneven.push_back(round.imbalance_before);
    assigned = std::make_shared<const control::assignment>(std::move(round.next));
    for (auto& l : loads) l.assign(assigned);
  }
  void ended(std::uint64_t tag) override {
    const auto i = leases.find(tag);
    policies[i->second.shard]->release(i->second.lease);
    leases.erase(i);
  }
  void report(std::size_t w, const router::worker_report& r, double now) override {
    for (auto& p : policies) p->report(name_of(w), 1, r, at(now));
  }
  void events(std::size_t w, const std::vector<std::uint64_t>& added,
              const std::vector<std::uint64_t>& dropped) override {
    if (!prefixes) return;
    for (auto& p : policies)
      if (!p->prefixes(name_of(w), 1, sequence[w], false, added, dropped)) std::abort();
    ++sequence[w];
  }
};

/// By the prompt's first kilotoken, on a ring with 100 points a worker.
struct consistent_hashing final : chooser {
  std::vector<std::pair<std::uint64_t, std::size_t>> ring;
  explicit consistent_hashing(std::size_t workers) {
    std::mt19937_64 random{7};
    for (std::size_t w = 0; w < workers; ++w)
      for (int i = 0; i < 100; ++i) ring.emplace_back(random(), w);
    std::sort(ring.begin(), ring.end());
  }
  std::size_t choose(const trace_request& r, std::uint64_t, double) override {
    const auto chain = chain_of(r);
    const auto key = chain.empty() ? 0 : chain[std::min<std::size_t>(chain.size() - 1, 7)];
    auto i = std::lower_bound(ring.begin(), ring.end(),
                              std::pair<std::uint64_t, std::size_t>{key, 0});
    return i == ring.end() ? ring.front().second : i->second;
  }
};

double quantile(std::vector<double> x, double q) {
  if (x.empty()) return 0;
  std::sort(x.begin(), x.end());
  return x[std::min(x.size() - 1, static_cast<std::size_t>(q * static_cast<double>(x.size())))];
}

struct outcome {
  std::string name;
  double hit_rate = 0;
  std::vector<double> ttfts;
  std::vector<double> balance, utilisation;  ///< of each window
  std::vector<double> counted() const {
    std::vector<double> c;
    for (std::size_t i = 0; i < balance.size(); ++i)
      if (utilisation[i] >= counted_utilisation) c.push_back(balance[i]);
    return c;
  }
};

outcome play(const std::string& name, const std::vector<trace_request>& trace, chooser& c,
             std::size_t workers, std::size_t blocks_max, const capacity::cost_model& costs) {
  std::vector<sim_worker> fleet(workers, sim_worker{costs, blocks_max});
  outcome o;
  o.name = name;
  const double end = static_cast<double>(trace.back().at_ms) / 1e3;
  std::vector<double> busy(workers);
  std::vector<std::uint64_t> added, dropped;
  std::size_t next = 0;
  std::uint64_t steps = 0;
  double window = window_seconds;
  for (double now = 0; now < end; now = static_cast<double>(++steps) * step_seconds) {
    for (; next < trace.size() && static_cast<double>(trace[next].at_ms) / 1e3 <= now; ++next)
      fleet[c.choose(trace[next], next, now)].submit(trace[next], next);
    for (std::size_t w = 0; w < workers; ++w) {
      fleet[w].run(now, step_seconds, [&](std::uint64_t tag) { c.ended(tag); });
      fleet[w].take_events(added, dropped);
      if (!added.empty() || !dropped.empty()) c.events(w, added, dropped);
      // Each at its own time of the second.
      if ((steps + w * 13) % static_cast<std::uint64_t>(report_seconds / step_seconds) == 0)
        c.report(w, fleet[w].report(), now);
      busy[w] += fleet[w].take_busy();
    }
    if (now < window) continue;
    double sum = 0, most = 0;
    for (auto& b : busy) {
      sum += b;
      most = std::max(most, b);
      b = 0;
    }
    o.balance.push_back(sum == 0 ? 1 : most * static_cast<double>(workers) / sum);
    o.utilisation.push_back(sum / static_cast<double>(workers) / window_seconds);
    c.interval(now);
    window += window_seconds;
  }
  std::uint64_t hit = 0, all = 0;
  for (const auto& w : fleet) {
    hit += w.hit_tokens();
    all += w.prompt_tokens();
    o.ttfts.insert(o.ttfts.end(), w.ttfts().begin(), w.ttfts().end());
  }
  o.hit_rate = static_cast<double>(hit) / static_cast<double>(std::max<std::uint64_t>(1, all));
  return o;
}

}  // namespace

bool bench_trace(const trace_setup& s) {
  const auto trace = read_trace(s.path);
  if (trace.empty()) {
    fmt::print(stderr,
               "{} is no trace of lines with timestamp, input_length, output_length and "
               "hash_ids\n",
               s.path);
    return false;
  }
  std::unordered_set<std::uint32_t> different;
  for (const auto& r : trace) different.insert(r.blocks.begin(), r.blocks.end());
  const auto blocks_max = std::max<std::size_t>(
      1, static_cast<std::size_t>(s.kv_share * static_cast<double>(different.size()) /
                                  static_cast<double>(s.workers)));
  const auto costs = capacity::cost_model::make(
                         {.alpha = 1 / s.prefill_tokens_per_second, .alpha2 = 2e-10, .beta = 5e-4},
                         {.device_class = "bench", .source = {}})
                         .value();
  fmt::print("{} requests, {} different blocks of 512 tokens; {} workers with {} blocks each, "
             "{:.0f} prompt tokens/s each\n",
             trace.size(), different.size(), s.workers, blocks_max, s.prefill_tokens_per_second);
  std::vector<outcome> all;
  auto run = [&](const std::string& name, chooser&& c) {
    all.push_back(play(name, trace, c, s.workers, blocks_max, costs));
  };
  shards several{s.shards, s.workers, costs, true, s};
  all.push_back(
      play(fmt::format("{} shards", s.shards), trace, several, s.workers, blocks_max, costs));
  run("one shard", shards{1, s.workers, costs, true, s});
  run("least load", shards{1, s.workers, costs, false, s});
  run("consistent hashing", consistent_hashing{s.workers});
  fmt::print("\nmax / mean busy time of workers by minute (mean utilisation)\nminute");
  for (const auto& o : all) fmt::print("{:>22}", o.name);
  for (std::size_t i = 0; i < all[0].balance.size(); ++i) {
    fmt::print("\n{:6}", i);
    for (const auto& o : all)
      fmt::print("{:>15.3f} ({:3.0f}%)", o.balance[i], o.utilisation[i] * 100);
  }
  fmt::print("\n\n{:20}{:>10}{:>12}{:>12}{:>10}{:>12}{:>12}\n", "", "hit rate", "balance p50",
             "balance p90", "windows", "ttft p50 s", "ttft p90 s");
  for (const auto& o : all) {
    const auto c = o.counted();
    fmt::print("{:20}{:>9.2f}%{:>12.3f}{:>12.3f}{:>10}{:>12.2f}{:>12.2f}\n", o.name,
               o.hit_rate * 100, quantile(c, 0.5), quantile(c, 0.9), c.size(),
               quantile(o.ttfts, 0.5), quantile(o.ttfts, 0.9));
  }
  fmt::print("the assigner moved {:.2f} of the key space in all; at worst the hottest of {} shards "
             "had {:.2f} of "
             "the mean load\n",
             several.churn, s.shards, quantile(several.uneven, 0.5));
  const auto& ours = all[0];
  const auto p90 = [](const outcome& o) { return quantile(o.counted(), 0.9); };
  bool held = true;
  const auto bar = [&](const std::string& what, double is, double at_least, double at_most) {
    const bool holds = is >= at_least && is <= at_most;
    held = held && holds;
    fmt::print("{}: {} {:.3f} ({})\n", holds ? "holds" : "MISSED", what, is,
               at_least > 0 ? fmt::format("at least {:.3f}", at_least)
                            : fmt::format("at most {:.3f}", at_most));
  };
  constexpr double any = 1e9;
  bar("hit rate against one shard's", ours.hit_rate / all[1].hit_rate, 0.95, any);
  bar("hit rate against least load's", ours.hit_rate / all[2].hit_rate, 1, any);
  bar("hit rate against consistent hashing's", ours.hit_rate / all[3].hit_rate, 1, any);
  bar("balance p50", quantile(ours.counted(), 0.5), 0, 1.15);
  bar("balance p90 against least load's", p90(ours) / p90(all[2]), 0, 1.1);
  return held;
}

}  // namespace troupe::bench
