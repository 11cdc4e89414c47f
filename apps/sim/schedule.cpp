#include "apps/sim/schedule.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace troupe::sim {

namespace {

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t h = 0xCBF29CE484222325ULL;  // FNV-1a
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return h;
}

}  // namespace

schedule::scope::scope(schedule& s, process_id p) : owner(s), before(s.current_) {
  s.claim_new_actors();
  s.current_ = p;
}
schedule::scope::~scope() {
  owner.claim_new_actors();
  owner.current_ = before;
}

schedule::schedule(caf::actor_system& system, std::uint64_t seed, history& log)
    : system_(system),
      scheduler_(dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler())),
      random_(seed, 1), log_(log) {
  processes_.push_back({"the world", condition::running, {}, {}, {}, {}});
  claim_new_actors();
}

time_point schedule::now() const { return time_point{scheduler_.clock().now().time_since_epoch()}; }

// -- processes -------------------------------------------------------------------

process_id schedule::add_process(std::string name) {
  processes_.push_back({std::move(name), condition::running, {}, {}, {}, {}});
  return processes_.size() - 1;
}

/// Ids count up: whatever came since the last look was spawned by what runs now.
void schedule::claim_new_actors() {
  owners_.resize(static_cast<std::size_t>(system_.latest_actor_id()) + 1, current_);
}

process_id schedule::owner_of(const caf::scheduled_actor& a) const {
  return a.id() < owners_.size() ? owners_[a.id()] : current_;
}

void schedule::remember(caf::scheduled_actor& a) {
  if (known_.size() <= a.id()) known_.resize(a.id() + 64, false);
  if (known_[a.id()]) return;
  known_[a.id()] = true;
  processes_[owner_of(a)].actors.push_back(a.address());
}

void schedule::freeze(process_id p) {
  if (alive(p)) processes_[p].how = condition::frozen;
}

void schedule::thaw(process_id p) {
  auto& it = processes_[p];
  if (it.how == condition::frozen) it.how = condition::running;
  for (auto* job : std::exchange(it.held_jobs, {})) scheduler_.jobs.push_back(job);
  for (auto& t : std::exchange(it.held_tasks, {})) ready_.push_back(std::move(t));
}

void schedule::kill(process_id p) {
  if (!alive(p)) return;
  thaw(p);  // its actors have to run to end
  processes_[p].how = condition::dead;
  processes_[p].on_activity = nullptr;
  purge(p);
}

/// What dies may leave actors behind that it has just spawned: they die, too.
void schedule::purge(process_id p) {
  const scope s{*this, p};
  std::erase_if(ready_, [p](const task& t) { return t.owner == p; });
  for (;;) {
    for (auto* job : scheduler_.jobs) {
      auto& a = static_cast<caf::scheduled_actor&>(*job);
      if (owner_of(a) == p) remember(a);
    }
    for (const auto& address : std::exchange(processes_[p].actors, {}))
      if (auto a = caf::actor_cast<caf::actor>(address))
        caf::anon_send_exit(a, caf::exit_reason::kill);
    bool ran = false;
    for (std::size_t i = 0; i < scheduler_.jobs.size();) {
      if (owner_of(static_cast<caf::scheduled_actor&>(*scheduler_.jobs[i])) != p) {
        ++i;
        continue;
      }
      std::swap(scheduler_.jobs.front(), scheduler_.jobs[i]);
      scheduler_.run_once();
      claim_new_actors();
      ran = true;
      i = 0;
    }
    if (!ran) return;
  }
}

std::vector<caf::actor> schedule::actors_named(process_id p, std::string_view name) const {
  std::vector<caf::actor> found;
  for (const auto& address : processes_[p].actors) {
    auto a = caf::actor_cast<caf::actor>(address);
    if (!a) continue;
    const auto& s = static_cast<caf::scheduled_actor&>(*caf::actor_cast<caf::abstract_actor*>(a));
    if (!s.getf(caf::abstract_actor::is_terminated_flag) && name == s.name())
      found.push_back(std::move(a));
  }
  return found;
}

// -- tasks -----------------------------------------------------------------------

void schedule::soon(process_id owner, std::function<void()> t) {
  ready_.push_back({owner, std::move(t)});
}

void schedule::at(time_point when, process_id owner, std::function<void()> t) {
  due_.emplace(std::max(when, now()), task{owner, std::move(t)});
}

bool schedule::run_one(time_point until) {
  for (;;) {
    run_after_this();
    const auto jobs = scheduler_.jobs.size();
    const auto all = jobs + ready_.size();
    if (all == 0) {
      if (!advance(until)) return false;
      continue;
    }
    ++steps_;
    const auto chosen = random_.index(all);
    if (chosen < jobs) {
      auto* job = scheduler_.jobs[chosen];
      auto& p = processes_[owner_of(static_cast<caf::scheduled_actor&>(*job))];
      if (p.how == condition::frozen) {
        scheduler_.jobs.erase(scheduler_.jobs.begin() + static_cast<std::ptrdiff_t>(chosen));
        p.held_jobs.push_back(job);
        continue;
      }
      run_job(chosen);
    } else {
      auto& t = ready_[chosen - jobs];
      auto& p = processes_[t.owner];
      if (p.how != condition::running) {
        if (p.how == condition::frozen) p.held_tasks.push_back(std::move(t));
        ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(chosen - jobs));
        continue;
      }
      run_task(chosen - jobs);
    }
    run_after_this();
    return true;
  }
}

void schedule::run_after_this() {
  while (!after_this_.empty()) {
    auto next = std::move(after_this_.front());
    after_this_.pop_front();
    next();
  }
}

void schedule::run_job(std::size_t index) {
  auto& jobs = scheduler_.jobs;
  auto& a = static_cast<caf::scheduled_actor&>(*jobs[index]);
  const auto p = owner_of(a);
  remember(a);
  running_ = a.id();
  auto* message = a.mailbox().peek();
  log_.note(now(), message == nullptr ? 0 : type_of(message->content()), a.id());
  if (on_message && message != nullptr) on_message(message->content());
  std::swap(jobs.front(), jobs[index]);
  {
    const scope s{*this, p};
    scheduler_.run_once();
  }
  if (const auto& call = processes_[p].on_activity) call();
}

void schedule::run_task(std::size_t index) {
  std::swap(ready_[index], ready_.back());
  auto t = std::move(ready_.back());
  ready_.pop_back();
  log_.note(now(), 1, t.owner);
  {
    const scope s{*this, t.owner};
    t.run();
  }
  if (const auto& call = processes_[t.owner].on_activity) call();
}

/// To the next point in time at which something is due; makes all that ready.
bool schedule::advance(time_point until) {
  auto& clock = scheduler_.clock();
  auto next = until;
  if (!due_.empty()) next = std::min(next, due_.begin()->first);
  if (!clock.schedule().empty())
    next = std::min(next, time_point{clock.schedule().begin()->first.time_since_epoch()});
  const auto step = std::max(std::chrono::nanoseconds{0}, next - now());
  scheduler_.advance_time(step);
  const auto t = now();
  while (!due_.empty() && due_.begin()->first <= t) {
    ready_.push_back(std::move(due_.begin()->second));
    due_.erase(due_.begin());
  }
  return !ready_.empty() || !scheduler_.jobs.empty() || t < until;
}

std::uint64_t schedule::type_of(const caf::type_erased_tuple& content) {
  std::uint64_t h = content.size();
  for (std::size_t i = 0; i < content.size() && i < 2; ++i) {
    const auto type = content.type(i);
    if (type.second == nullptr) {
      h = h * 31 + type.first;
      continue;
    }
    auto known = types_.find(type.second);
    if (known == types_.end())
      known = types_.emplace(type.second, hash_of(type.second->name())).first;
    h = h * 31 + known->second;
  }
  return h;
}

}  // namespace troupe::sim
