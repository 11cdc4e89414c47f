#include "apps/sim/faults.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace troupe::sim {

namespace {

using namespace std::chrono_literals;

constexpr std::array<std::string_view, fault_kinds> names = {
    "kill_engine", "kill_loading", "stuck_loading", "crash_in_step", "freeze_short",
    "freeze_long", "thaw_fenced",  "hang_in_step",  "slow_engine",   "garbage",
    "lose_kv",     "cut_link",     "cut_one_way",   "kill_node",     "lose_host",
    "freeze_node", "kill_hub",     "kill_router",   "kill_launcher", "kill_watchdog",
    "kill_link",   "stop_engine",  "crash_loop",    "drain_engine",  "restart_engine"};

std::chrono::milliseconds lasting(fault_kind k, seeded& random) {
  switch (k) {
  case fault_kind::freeze_engine_short:
    return random.between(100ms, 2'500ms);
  case fault_kind::thaw_fenced_engine:
    return random.between(5'000ms, 9'000ms);
  case fault_kind::slow_engine:
    return random.between(500ms, 4'000ms);
  case fault_kind::cut_link:
  case fault_kind::cut_one_way:
    return random.chance(0.4) ? random.between(50ms, 3'000ms) : random.between(3'000ms, 9'000ms);
  case fault_kind::crash_loop:
    return random.between(4'000ms, 20'000ms);
  case fault_kind::drain_engine:
  case fault_kind::restart_engine:
    return random.between(200ms, 8'000ms);
  case fault_kind::kill_node:
  case fault_kind::lose_host:
    return random.between(200ms, 4'000ms);
  case fault_kind::freeze_node:
    return random.chance(0.5) ? random.between(100ms, 3'000ms) : random.between(3'000ms, 8'000ms);
  default:
    return 0ms;
  }
}

}  // namespace

std::string_view to_string(fault_kind k) { return names[static_cast<std::size_t>(k)]; }

expected<std::vector<fault_kind>> parse_faults(std::string_view text) {
  std::vector<fault_kind> all;
  for (std::size_t begin = 0, end = 0; end < text.size(); begin = end + 1) {
    end = std::min(text.find(',', begin), text.size());
    const auto word = text.substr(begin, end - begin);
    const auto i = std::find(names.begin(), names.end(), word);
    if (i == names.end())
      return error{"unknown_fault", fmt::format("there is no fault '{}'; there are {}", word,
                                                fmt::join(names, ", "))};
    all.push_back(static_cast<fault_kind>(i - names.begin()));
  }
  return all;
}

std::string join(const std::vector<fault_kind>& kinds) {
  std::string out;
  for (auto k : kinds) {
    if (!out.empty()) out += ',';
    out += to_string(k);
  }
  return out;
}

bool can_hit(fault_kind k, phase p) {
  switch (k) {
  case fault_kind::lose_kv:
    return p == phase::transferring;
  case fault_kind::kill_engine:
  case fault_kind::crash_in_step:
  case fault_kind::freeze_engine_short:
  case fault_kind::freeze_engine_long:
  case fault_kind::thaw_fenced_engine:
  case fault_kind::hang_in_step:
  case fault_kind::slow_engine:
  case fault_kind::garbage:
  case fault_kind::stop_engine:
  case fault_kind::crash_loop:
  case fault_kind::drain_engine:
  case fault_kind::restart_engine:
    return p != phase::routing;
  default:
    return true;
  }
}

std::vector<planned_fault> plan_faults(seeded random, std::size_t count,
                                       std::chrono::milliseconds during,
                                       const std::vector<fault_kind>& only) {
  std::vector<planned_fault> all;
  for (std::size_t i = 0; i < count; ++i) {
    planned_fault f;
    f.what = only.empty() ? static_cast<fault_kind>(random.below(fault_kinds))
                          : only[random.below(only.size())];
    f.at = random.between(std::chrono::nanoseconds{0}, std::chrono::nanoseconds{during});
    f.lasts = lasting(f.what, random);
    f.draw = random.next();
    // Without aim the short phases would hardly ever be hit.
    if (random.chance(0.6)) f.aim = static_cast<phase>(random.below(phases));
    all.push_back(f);
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  return all;
}

}  // namespace troupe::sim
