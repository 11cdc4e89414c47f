#include "actors/router/block_index.hpp"
#include "tools/bench/router/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace troupe::bench {

percentiles of(std::vector<std::uint32_t>& t) {
  std::sort(t.begin(), t.end());
  auto at = [&](double q) {
    return t[std::min(t.size() - 1, static_cast<std::size_t>(q * static_cast<double>(t.size())))] /
           1e3;
  };
  return {at(0.5), at(0.99), at(0.999), t.back() / 1e3};
}

std::vector<std::uint64_t> chain_of(std::uint64_t prompt, const setup& s) {
  std::vector<std::uint64_t> c;
  std::mt19937_64 workload{prompt % 100}, own{prompt + 1'000};
  for (std::size_t i = 0; i < s.chain_blocks; ++i)
    c.push_back(i < s.shared_blocks ? workload() : own());
  return c;
}

/// As many prompts as give the blocks wanted, each at some worker that serves its workload; then
/// the oldest give way to new ones, as under a full cache; then questions.
void bench_index(const setup& s) {
  using router::block_index;
  const auto prompts = s.blocks / (s.chain_blocks - s.shared_blocks);
  std::vector<std::vector<std::uint64_t>> chains;
  for (std::uint64_t p = 0; p < prompts * 2; ++p) chains.push_back(chain_of(p, s));
  std::mt19937_64 random{s.seed};
  block_index index;
  std::vector<block_index::holder> workers;
  for (std::size_t i = 0; i < s.workers; ++i) workers.push_back(index.join());
  // Workload w is served by the workers w * subset ..., which overlap as they may.
  auto worker_of = [&](std::size_t p, std::uint64_t draw) {
    return workers[(p % 100 * 97 + draw % s.subset) % workers.size()];
  };
  std::vector<block_index::holder> home(chains.size());
  for (std::size_t p = 0; p < chains.size(); ++p) home[p] = worker_of(p, random());

  auto begun = clock::now();
  for (std::size_t p = 0; p < prompts; ++p) index.add(home[p], chains[p]);
  const auto filled = seconds_since(begun);
  const auto fills = static_cast<double>(prompts * s.chain_blocks);
  const auto bytes = index.bytes();
  const auto known = index.blocks();

  begun = clock::now();
  for (std::size_t p = 0; p < prompts; ++p) {
    index.drop(home[p], std::span{chains[p]}.subspan(s.shared_blocks));
    index.add(home[p + prompts], chains[p + prompts]);
  }
  const auto turned = seconds_since(begun);
  const auto turns = static_cast<double>(prompts * (2 * s.chain_blocks - s.shared_blocks));

  std::vector<std::uint32_t> times;
  std::vector<block_index::holder> who(s.subset);
  std::vector<std::uint32_t> out(s.subset);
  std::uint64_t found = 0;
  for (int n = 0; n < 200'000; ++n) {
    const auto p = prompts + random() % prompts;
    for (std::size_t k = 0; k < s.subset; ++k) who[k] = worker_of(p, k);
    const auto start = clock::now();
    index.longest(chains[p], who, out);
    times.push_back(static_cast<std::uint32_t>((clock::now() - start).count()));
    found += *std::max_element(out.begin(), out.end());
  }
  const auto t = of(times);
  fmt::print("index: {} workers, {} blocks, {:.1f} bytes a block\n", s.workers, known,
             static_cast<double>(bytes) / static_cast<double>(known));
  fmt::print("  filling, growth included  {:6.2f} million updates/s\n", fills / filled / 1e6);
  fmt::print("  a full cache's turnover   {:6.2f} million updates/s\n", turns / turned / 1e6);
  fmt::print("  longest prefix of {} workers, {} blocks ({:.1f} found): median {:.2f} us, p99 "
             "{:.2f}, p99.9 {:.2f}, max {:.0f}\n",
             s.subset, s.chain_blocks, static_cast<double>(found) / 200'000, t.median_us, t.p99_us,
             t.p999_us, t.max_us);
}

}  // namespace troupe::bench
