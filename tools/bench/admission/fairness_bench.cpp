#include "tests/support/vtc_world.hpp"
#include "tools/bench/admission/measure.hpp"

#include <fmt/format.h>

namespace troupe::bench {

bool bench_fairness(const seeds& s) {
  struct row {
    double ratio;
    std::array<double, 2> weights;
    bool pauses;
  };
  fmt::print("fairness: two tenants with requests waiting, seeds {} to {}, 1 to 8 places; service "
             "in MU by weight\n{:>6} {:>8} {:>9} {:>12} {:>10} {:>8} {:>13}\n",
             s.first, s.first + s.count - 1, "sizes", "weights", "pauses", "largest gap", "bound",
             "of it", "first's share");
  double worst = 0;
  std::uint64_t idle = 0;
  for (const auto& r : {row{10, {1, 1}, false}, row{10, {1, 1}, true}, row{10, {1, 2.5}, true},
                        row{10, {2.5, 1}, true}, row{1, {1, 1}, true}, row{3, {1, 1}, true},
                        row{30, {1, 1}, true}, row{100, {1, 1}, true}}) {
    double most = 0, gap = 0, bound = 0, share = 0;
    for (std::uint64_t seed = s.first; seed < s.first + s.count; ++seed) {
      admission::vtc_world w{{.ratio = r.ratio,
                              .weights = r.weights,
                              .places = static_cast<std::uint32_t>(1 + seed % 8),
                              .pauses = r.pauses,
                              .seed = seed}};
      w.run();
      share += w.first_share() / static_cast<double>(s.count);
      idle += w.idle_places();
      if (w.gap() / w.bound() <= most) continue;
      most = w.gap() / w.bound();
      gap = w.gap();
      bound = w.bound();
    }
    worst = std::max(worst, most);
    fmt::print("{:>6} {:>8} {:>9} {:>12.2f} {:>10.2f} {:>7.0f}% {:>12.1f}%\n",
               fmt::format("{:g}:1", r.ratio), fmt::format("{:g}:{:g}", r.weights[0], r.weights[1]),
               r.pauses ? "yes" : "no", gap, bound, 100 * most, 100 * share);
  }
  bool holds = promised("largest gap in service, as a part of VTC's bound 2 max(L_in, M)",
                        fmt::format("{:.0f} %", 100 * worst), "100 %", worst <= 1);
  return promised("places that were free while somebody waited", fmt::format("{}", idle), "0",
                  idle == 0) &&
         holds;
}

}  // namespace troupe::bench
