#include "apps/sim/report.hpp"

#include <fmt/format.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <algorithm>
#include <array>
#include <set>
#include <sstream>

namespace troupe::sim {

namespace {

/// Findings of one run that are written out.
constexpr std::size_t findings_shown_max = 8;

constexpr std::array<std::string_view, planted::bugs> bug_names = {"none",
                                                                   "leak_lease",
                                                                   "leak_ticket",
                                                                   "leak_job",
                                                                   "keep_early_open",
                                                                   "leak_buffer",
                                                                   "leak_kv",
                                                                   "free_used_kv",
                                                                   "adopt_early",
                                                                   "skip_attempt_check",
                                                                   "drop_down",
                                                                   "forget_gone",
                                                                   "forget_renewal",
                                                                   "forget_deadline",
                                                                   "lose_last_batch",
                                                                   "duplicate_token",
                                                                   "answer_twice",
                                                                   "kill_progressing",
                                                                   "no_restart_limit",
                                                                   "forget_stall",
                                                                   "keep_assignment",
                                                                   "forget_job"};

using writer = rapidjson::Writer<rapidjson::StringBuffer>;

void text(writer& w, const char* key, const std::string& value) {
  w.Key(key);
  w.String(value.data(), static_cast<rapidjson::SizeType>(value.size()));
}
void count(writer& w, std::string_view key, std::uint64_t value) {
  w.Key(key.data(), static_cast<rapidjson::SizeType>(key.size()));
  w.Uint64(value);
}
void counts(writer& w, const char* key, const std::map<std::string, std::uint64_t>& all) {
  w.Key(key);
  w.StartObject();
  for (const auto& [name, n] : all) count(w, name, n);
  w.EndObject();
}

/// Never empty.
std::string kinds_of(const run_options& o) { return o.only.empty() ? "all" : join(o.only); }

double per_second(const batch& b) {
  return b.seconds > 0 ? static_cast<double>(b.runs) / b.seconds : 0;
}

}  // namespace

void batch::add(const run_result& r) {
  ++runs;
  next_seed = r.seed + 1;
  hash = (hash ^ r.hash) * 0x9E3779B97F4A7C15ULL;
  hash ^= hash >> 31U;
  events += r.events;
  requests += r.requests;
  finished += r.finished;
  failed += r.failed;
  left += r.left;
  cut_off += r.cut_off;
  faults += r.faults;
  moves += r.moves;
  faults_min = std::min<std::uint64_t>(faults_min, r.faults);
  for (const auto& [code, n] : r.failures) failures[code] += n;
  for (const auto& [code, n] : r.attempts) attempts[code] += n;
  for (std::size_t f = 0; f < fault_kinds; ++f)
    for (std::size_t p = 0; p < phases; ++p) hits[f][p] += r.hits[f][p];
  if (!r.findings.empty()) bad.push_back({r.seed, r.findings});
}

std::vector<std::pair<fault_kind, phase>> batch::never_hit() const {
  std::vector<std::pair<fault_kind, phase>> all;
  for (std::size_t f = 0; f < fault_kinds; ++f)
    for (std::size_t p = 0; p < phases; ++p) {
      const std::pair pair{static_cast<fault_kind>(f), static_cast<phase>(p)};
      if (hits[f][p] == 0 && can_hit(pair.first, pair.second)) all.push_back(pair);
    }
  return all;
}

std::string to_json(const batch& b) {
  rapidjson::StringBuffer out;
  writer w{out};
  w.StartObject();
  count(w, "first_seed", b.options.seed);
  count(w, "runs", b.runs);
  text(w, "hash", fmt::format("{:016x}", b.hash));
  w.Key("runs_per_second");
  w.Double(per_second(b));
  count(w, "events", b.events);
  count(w, "requests", b.requests);
  count(w, "finished", b.finished);
  count(w, "failed", b.failed);
  count(w, "left", b.left);
  count(w, "cut_off", b.cut_off);
  count(w, "faults", b.faults);
  count(w, "moves", b.moves);
  count(w, "faults_of_a_run_min", b.runs > 0 ? b.faults_min : 0);
  counts(w, "failures", b.failures);
  counts(w, "attempts", b.attempts);
  w.Key("coverage");
  w.StartObject();
  for (std::size_t f = 0; f < fault_kinds; ++f) {
    const auto name = to_string(static_cast<fault_kind>(f));
    w.Key(name.data(), static_cast<rapidjson::SizeType>(name.size()));
    w.StartObject();
    for (std::size_t p = 0; p < phases; ++p)
      count(w, to_string(static_cast<phase>(p)), b.hits[f][p]);
    w.EndObject();
  }
  w.EndObject();
  w.Key("never_hit");
  w.StartArray();
  for (const auto& [f, p] : b.never_hit()) {
    const auto pair = fmt::format("{} {}", to_string(f), to_string(p));
    w.String(pair.data(), static_cast<rapidjson::SizeType>(pair.size()));
  }
  w.EndArray();
  w.Key("bad");
  w.StartArray();
  for (const auto& r : b.bad) {
    w.StartObject();
    count(w, "seed", r.seed);
    auto o = b.options;
    o.seed = r.seed;
    text(w, "replay", replay_command(o));
    w.Key("findings");
    w.StartArray();
    for (const auto& f : r.findings) {
      w.StartObject();
      text(w, "checker", f.checker);
      text(w, "subject", f.subject);
      text(w, "text", f.text);
      w.EndObject();
    }
    w.EndArray();
    w.EndObject();
  }
  w.EndArray();
  w.EndObject();
  return {out.GetString(), out.GetSize()};
}

std::string to_text(const batch& b) {
  std::string out = fmt::format(
      "{} runs from seed {}: {} bad; {:.1f} a second, {} events, hash {:016x}\n"
      "{} requests: {} finished, {} failed, {} clients left, {} were cut off; {} faults, at "
      "least {} a run; {} streams were moved\n",
      b.runs, b.options.seed, b.bad.size(), per_second(b), b.events, b.hash, b.requests, b.finished,
      b.failed, b.left, b.cut_off, b.faults, b.runs > 0 ? b.faults_min : 0, b.moves);
  const auto list = [&](const char* title, const std::map<std::string, std::uint64_t>& all) {
    out += title;
    for (const auto& [name, n] : all) out += fmt::format(" {} {},", n, name);
    out.back() = '\n';
  };
  if (!b.failures.empty()) list("failed with:", b.failures);
  if (!b.attempts.empty()) list("attempts ended with:", b.attempts);
  out += fmt::format("requests hit, by fault and phase:\n{:<15}", "");
  for (std::size_t p = 0; p < phases; ++p)
    out += fmt::format("{:>13}", to_string(static_cast<phase>(p)));
  out += '\n';
  for (std::size_t f = 0; f < fault_kinds; ++f) {
    out += fmt::format("{:<15}", to_string(static_cast<fault_kind>(f)));
    for (std::size_t p = 0; p < phases; ++p)
      out += can_hit(static_cast<fault_kind>(f), static_cast<phase>(p))
                 ? fmt::format("{:>13}", b.hits[f][p])
                 : fmt::format("{:>13}", "-");
    out += '\n';
  }
  for (const auto& [f, p] : b.never_hit())
    out += fmt::format("never hit: {} while {}\n", to_string(f), to_string(p));
  return out;
}

std::string replay_command(const run_options& o) {
  auto command = fmt::format("troupe sim chaos --seed {} --requests {} --faults {}", o.seed,
                             o.requests, o.faults);
  if (!o.only.empty()) command += fmt::format(" --only {}", join(o.only));
  if (o.planted != planted::bug::none)
    command += fmt::format(" --planted {}", to_string(o.planted));
  return command + " --verbose";
}

std::string story(const run_result& r, std::size_t lines_max) {
  std::set<std::string> subjects;
  std::string out = fmt::format("seed {}:\n", r.seed);
  for (std::size_t i = 0; i < r.findings.size(); ++i) {
    const auto& f = r.findings[i];
    if (i < findings_shown_max) {
      if (!f.subject.empty()) subjects.insert(f.subject);
      out += fmt::format("  {}: {} {}\n", f.checker, f.subject, f.text);
    }
  }
  if (r.findings.size() > findings_shown_max)
    out += fmt::format("  and {} more\n", r.findings.size() - findings_shown_max);
  std::size_t shown = 0;
  for (const auto& line : r.lines) {
    const bool told = line.subject == "FAULT" || subjects.contains(line.subject) ||
                      line.text.find("process ends") != std::string::npos ||
                      line.text.find("starts") != std::string::npos ||
                      line.text.find("is started") != std::string::npos;
    if (!told || ++shown > lines_max) continue;
    out += fmt::format("  {:10.4f} s {:<18} {}\n",
                       std::chrono::duration<double>(line.at.time_since_epoch()).count() - 3'600,
                       line.subject, line.text);
  }
  if (shown > lines_max) out += fmt::format("  and {} more lines\n", shown - lines_max);
  return out;
}

std::string save(const batch& b) {
  auto out = fmt::format("troupe-sim 3 {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}\n",
                         b.options.seed, b.options.requests, b.options.faults, kinds_of(b.options),
                         to_string(b.options.planted), b.next_seed, b.runs, b.seconds, b.hash,
                         b.events, b.requests, b.finished, b.failed, b.left, b.cut_off, b.faults,
                         b.faults_min, b.moves, b.bad.size());
  for (const auto& row : b.hits) {
    for (auto n : row) out += fmt::format("{} ", n);
    out += '\n';
  }
  for (const auto* all : {&b.failures, &b.attempts}) {
    out += fmt::format("{}", all->size());
    for (const auto& [name, n] : *all) out += fmt::format(" {} {}", name, n);
    out += '\n';
  }
  for (const auto& r : b.bad) out += fmt::format("{} {}\n", r.seed, r.findings.front().checker);
  return out;
}

expected<batch> load(const std::string& in, const run_options& options) {
  const error broken{"bad_state", "the state file cannot be read; remove it to begin anew"};
  std::istringstream s{in};
  batch b;
  b.options = options;
  std::string magic, kinds, bug;
  int version = 0;
  std::uint64_t seed = 0;
  std::size_t requests = 0, faults = 0, bad = 0;
  s >> magic >> version >> seed >> requests >> faults >> kinds >> bug >> b.next_seed >> b.runs >>
      b.seconds >> b.hash >> b.events >> b.requests >> b.finished >> b.failed >> b.left >>
      b.cut_off >> b.faults >> b.faults_min >> b.moves >> bad;
  if (!s || magic != "troupe-sim" || version != 3) return broken;
  if (seed != options.seed || requests != options.requests || faults != options.faults ||
      kinds != kinds_of(options) || bug != to_string(options.planted))
    return error{"bad_state", "the state file is of other runs: --seed " + std::to_string(seed) +
                                  " --requests " + std::to_string(requests) + " --faults " +
                                  std::to_string(faults) + " --only " + kinds};
  for (auto& row : b.hits)
    for (auto& n : row) s >> n;
  for (auto* all : {&b.failures, &b.attempts}) {
    std::size_t size = 0;
    s >> size;
    for (std::size_t i = 0; i < size && s; ++i) {
      std::string name;
      s >> name;
      s >> (*all)[name];
    }
  }
  for (std::size_t i = 0; i < bad && s; ++i) {
    batch::bad_run r;
    finding f;
    s >> r.seed >> f.checker;
    f.text = "found by an earlier part of this batch";
    r.findings.push_back(std::move(f));
    b.bad.push_back(std::move(r));
  }
  if (!s) return broken;
  return b;
}

std::string_view to_string(planted::bug b) { return bug_names[static_cast<std::size_t>(b)]; }

planted::bug parse_bug(std::string_view name) {
  const auto i = std::find(bug_names.begin(), bug_names.end(), name);
  return i == bug_names.end() ? planted::bug::none
                              : static_cast<planted::bug>(i - bug_names.begin());
}

}  // namespace troupe::sim
