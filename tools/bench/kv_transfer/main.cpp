// KV transfer between two processes against what UCX itself gives: the bar is 90 %.
#include "tools/bench/kv_transfer/measure.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

using namespace troupe;

namespace {

constexpr double ratio_min = 0.9;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Moves KV pieces from one process to another over Troupe's UCX backend and over UCX "
               "alone, in turns, and compares."};
  std::vector<std::size_t> sizes_mib{1, 8};
  std::size_t repeats = 5;
  std::size_t total_mib = 2048;
  app.add_option("--sizes-mib", sizes_mib, "sizes of a piece")->capture_default_str();
  app.add_option("--repeats", repeats, "interleaved repeats of each")->capture_default_str();
  app.add_option("--total-mib", total_mib, "moved in each repeat")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  fmt::print("{:<18} {:>9} {:<8} {:>14} {:>14} {:>8}  {}\n", "transport", "piece", "buffers",
             "Troupe MiB/s", "UCX MiB/s", "ratio", "UCX by");
  bool good = true;
  for (auto where : {transfer::proximity::other_host, transfer::proximity::same_host}) {
    for (auto size : sizes_mib) {
      for (const bool ring : {false, true}) {
        bench::setting s{where, size << 20U, ring ? std::size_t{64} << 20U : 0, total_mib << 20U};
        std::vector<double> ours;
        std::vector<double> theirs;
        std::vector<double> ratios;
        for (std::size_t i = 0; i < repeats; ++i) {
          auto a = bench::measure_troupe(s);
          auto b = ring ? bench::measure_plain(s) : bench::measure_perftest(s);
          if (!a || !b) {
            fmt::print(stderr, "a measurement failed ({} by {}, {} buffers)\n", s.tls(),
                       a ? "UCX alone" : "Troupe", s.slots());
            return 2;
          }
          ours.push_back(*a);
          theirs.push_back(*b);
          ratios.push_back(*a / *b);
        }
        const auto ratio = median(ours) / median(theirs);
        const bool reached = ratio >= ratio_min;
        good &= reached;
        fmt::print("{:<18} {:>5} MiB {:<8} {:>14.0f} {:>14.0f} {:>8.2f}  {:<12} {} (pairs {:.2f} "
                   "to {:.2f})\n",
                   where == transfer::proximity::same_host ? "shared memory" : "tcp, peer errors",
                   size, ring ? "64 MiB" : "one", median(ours), median(theirs), ratio,
                   ring ? "plain loop" : "ucx_perftest", reached ? "ok" : "TOO SLOW",
                   *std::min_element(ratios.begin(), ratios.end()),
                   *std::max_element(ratios.begin(), ratios.end()));
        std::fflush(stdout);
      }
    }
  }
  fmt::print("{}: at least {:.0f} % of UCX everywhere is the bar; sends under way at once: {}\n",
             good ? "PASS" : "FAIL", ratio_min * 100, bench::outstanding);
  return good ? 0 : 1;
}
