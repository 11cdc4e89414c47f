#include "actors/drain/drain_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace troupe::drain {

namespace {

bool is_engine(const directory::entry& e) {
  return e.role == msg::Role::PREFILL || e.role == msg::Role::DECODE || e.role == msg::Role::BOTH;
}

bool means(const target& t, const directory::entry& e) {
  switch (t.what) {
  case target::kind::pool:
    return e.pool == t.name;
  case target::kind::host:
    return e.host == t.name;
  case target::kind::engine:
    break;
  }
  return e.name == t.name;
}

}  // namespace

std::vector<std::string> engines_of(const directory::snapshot& all, const target& t) {
  std::vector<const directory::entry*> found;
  for (const auto& [name, e] : all)
    if (is_engine(e) && means(t, e)) found.push_back(&e);
  std::sort(found.begin(), found.end(), [](const auto* a, const auto* b) {
    return std::tie(a->pool, a->host, a->name) < std::tie(b->pool, b->host, b->name);
  });
  std::vector<std::string> names;
  for (const auto* e : found) names.push_back(e->name);
  return names;
}

std::string launcher_of(const std::string& engine) {
  const auto slash = engine.find('/');
  return "launcher" + (slash == std::string::npos ? "/" + engine : engine.substr(slash));
}

drain_run::drain_run(std::vector<std::string> engines, run_limits limits)
    : limits_(limits), ordered_at_(engines.size()) {
  for (auto& name : engines) engines_.emplace_back().engine = std::move(name);
}

std::vector<std::string> drain_run::next(time_point now) {
  const auto room = limits_.at_once == 0 ? std::numeric_limits<std::size_t>::max()
                                         : std::size_t{limits_.at_once};
  auto busy = static_cast<std::size_t>(std::count_if(
      engines_.begin(), engines_.end(), [](const auto& e) { return e.ordered && !e.over; }));
  std::vector<std::string> names;
  for (std::size_t i = 0; i < engines_.size() && busy < room; ++i) {
    auto& e = engines_[i];
    if (e.ordered || e.over) continue;
    e.ordered = true;
    ordered_at_[i] = now;
    ++busy;
    names.push_back(e.engine);
  }
  return names;
}

void drain_run::heard(const std::string& engine, const engine_progress& news) {
  auto* e = find(engine);
  if (!e || !e->ordered || e->over) return;
  e->answered = true;
  e->phase = news.phase;
  e->jobs_left = news.jobs_left;
  if (news.phase == msg::DrainPhase::REFUSED)
    return fail(*e, news.failure.empty() ? "it was refused" : news.failure);
  e->over = news.over;
}

void drain_run::lost(const std::string& engine) {
  if (auto* e = find(engine); e && !e->over) fail(*e, "it left the directory");
}

bool drain_run::tick(time_point now) {
  bool changed = false;
  for (std::size_t i = 0; i < engines_.size(); ++i) {
    auto& e = engines_[i];
    if (!e.ordered || e.over) continue;
    const auto since = now - ordered_at_[i];
    if (!e.answered && since >= limits_.answer_max)
      fail(e, fmt::format("its launcher has not answered for {} ms", limits_.answer_max.count()));
    else if (limits_.whole_max.count() > 0 && since >= limits_.whole_max)
      fail(e, fmt::format("it has not come to an end for {} ms", limits_.whole_max.count()));
    changed = changed || e.over;
  }
  return changed;
}

bool drain_run::over() const {
  return std::all_of(engines_.begin(), engines_.end(), [](const auto& e) { return e.over; });
}

engine_progress* drain_run::find(const std::string& engine) {
  auto i = std::find_if(engines_.begin(), engines_.end(),
                        [&](const auto& e) { return e.engine == engine; });
  return i == engines_.end() ? nullptr : &*i;
}

void drain_run::fail(engine_progress& e, std::string why) {
  e.over = true;
  e.failure = std::move(why);
  if (limits_.at_once == 0) return;
  for (auto& other : engines_) {
    if (other.ordered || other.over) continue;
    other.over = true;
    other.failure = "not begun, since " + e.engine + " failed";
  }
}

}  // namespace troupe::drain
