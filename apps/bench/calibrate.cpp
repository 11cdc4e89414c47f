#include "apps/bench/calibrate.hpp"

#include "actors/capacity/calibrated.hpp"
#include "apps/bench/cost_reading.hpp"
#include "apps/bench/load.hpp"
#include "apps/bench/prompts.hpp"
#include "apps/bench/request_body.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <ostream>
#include <random>
#include <thread>
#include <utility>

namespace troupe::bench {

namespace {

constexpr int exit_failed = 1;
constexpr int exit_usage = 2;
constexpr double p95 = 95;
constexpr double ns_per_ms = 1e6;
/// Until the tokeniser has been met.
constexpr double bytes_per_token_assumed = 4;
constexpr std::uint32_t warm_up_requests = 4;
constexpr std::chrono::milliseconds get_timeout{5'000};
/// Costs come with a request's end, or shortly after.
constexpr std::chrono::milliseconds settle_poll{50};
constexpr std::chrono::milliseconds settle_wait{8'000};
constexpr std::chrono::milliseconds idle_wait{10'000};

std::string percent(double x) { return fmt::format("{:.1f} %", x * 100); }

/// What came of one workload.
struct measured_workload {
  std::vector<capacity::measured_request> requests;
  // Without each connection's first request.
  std::vector<capacity::measured_request> steady;
  double ttft_p95_ms = 0;
  double tpot_p95_ms = 0;
  double minutes = 0;
};

/// A file that stands there as a whole or not at all.
expected<void> write_file(const std::string& path, const std::string& text) {
  const auto next = path + ".new";
  {
    std::ofstream out{next, std::ios::binary | std::ios::trunc};
    out << text;
    if (!out.flush()) return error{"usage", fmt::format("{} cannot be written", next)};
  }
  std::error_code failure;
  std::filesystem::rename(next, path, failure);
  if (failure)
    return error{"usage", fmt::format("{} cannot be written: {}", path, failure.message())};
  return ok;
}

class calibration_run {
 public:
  calibration_run(const calibrate_settings& settings, std::ostream& err)
      : s_(settings), scope_(settings.scope), err_(err) {}

  expected<calibrate_report> run() {
    for (const auto step :
         {&calibration_run::prepare, &calibration_run::warm_up, &calibration_run::fit,
          &calibration_run::hold_out, &calibration_run::find_capacity})
      if (auto done = (this->*step)(); !done) return done.error();
    judge_at_usual_batch();
    report_.seconds_per_mu = model().seconds_per_mu();
    return std::move(report_);
  }

 private:
  // -- what is measured ----------------------------------------------------------------

  expected<void> prepare() {
    auto targets = targets_of(s_);
    if (!targets) return targets.error();
    if (targets->size() != 1)
      return error{"usage", "calibrate one cluster, by one --url: its node knows the requests"};
    load_.targets = *std::move(targets);
    load_.request_timeout = load_.drain_timeout = std::chrono::milliseconds{
        static_cast<std::int64_t>(s_.request_timeout_s * 1e3)};
    body_.kind = s_.kind == "chat" ? endpoint::chat : endpoint::completions;
    body_.ignore_eos = true;
    body_.temperature = 0;
    load_.path = path_of(body_.kind);
    body_.model = s_.model;
    if (body_.model.empty()) {
      auto first = first_model(target());
      if (!first) return first.error();
      body_.model = *std::move(first);
    }
    const auto hardware = await_idle();
    if (!hardware) return hardware.error();
    scope_.engines = hardware->engines;
    all_engines_ = hardware->all_engines;
    report_.costs.model = body_.model;
    report_.costs.device_class = hardware->device_class;
    say(fmt::format("{} on \"{}\", {} engine{}", body_.model, hardware->device_class, all_engines_,
                    all_engines_ == 1 ? "" : "s"));
    return ok;
  }

  /// An engine that has just been loaded has not reported yet, either.
  expected<measured_hardware> await_idle() const {
    const auto until = std::chrono::steady_clock::now() + idle_wait;
    while (true) {
      const auto workers = get(target(), "/debug/workers", get_timeout);
      if (!workers) return workers.error();
      auto hardware = read_hardware(workers->body, body_.model);
      if (!hardware || hardware->idle) return hardware;
      if (std::chrono::steady_clock::now() > until)
        return error{"not_idle", "its engines serve others; calibrate a cluster that has nothing "
                                 "else to do"};
      std::this_thread::sleep_for(settle_poll);
    }
  }

  /// The engine's first passes, its estimates, and the tokeniser's bytes per token.
  expected<void> warm_up() {
    const auto longest = *std::max_element(scope_.prompts.begin(), scope_.prompts.end());
    const auto shortest = *std::min_element(scope_.outputs.begin(), scope_.outputs.end());
    workload w{"warm-up", std::min(warm_up_requests, 2 * scope_.engines), 0, {}};
    w.requests.assign(warm_up_requests * scope_.engines, {longest / 2, shortest});
    const auto bytes = longest * bytes_per_token_ / 2;
    const auto done = measure(w, 0, 0);
    if (!done) return done.error();
    double tokens = 0;
    for (const auto& r : done->requests) tokens += r.shape.prompt_tokens;
    if (tokens > 0) bytes_per_token_ = bytes * static_cast<double>(done->requests.size()) / tokens;
    say(fmt::format("warmed up; {:.2f} bytes a token", bytes_per_token_));
    return ok;
  }

  expected<void> fit() {
    const auto points = sweep_of(scope_);
    std::vector<capacity::measured_request> all;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const auto done = measure(points[i], i + 1, points.size());
      if (!done) return done.error();
      all.insert(all.end(), done->requests.begin(), done->requests.end());
    }
    const auto c = capacity::fit_costs(all);
    if (!c) return c.error();
    auto& costs = report_.costs;
    costs.alpha = c->alpha;
    costs.alpha2 = c->alpha2;
    costs.beta = c->beta;
    costs.beta_step = c->beta_step;
    costs.gamma = c->gamma;
    costs.usual_batch = capacity::usual_batch_of(all);
    report_.fitted = all.size();
    const auto made = capacity::cost_model_of(costs);
    if (!made) return made.error();
    // Now, and not by the node that will be given the file.
    if (const auto back = config::parse_calibration(config::print_calibration(costs), s_.output);
        !back)
      return error{"bad_fit", fmt::format("what was fitted is no calibration: {}",
                                          to_string(back.problems.front()))};
    say(fmt::format("fitted to {} requests", all.size()));
    return ok;
  }

  expected<void> hold_out() {
    const auto all = held_out_of(scope_);
    std::vector<capacity::prediction> guesses;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto done = measure(all[i], i + 1, all.size());
      if (!done) return done.error();
      held_out_result r{all[i].name, capacity::usual_batch_of(done->requests), {}, {}};
      const auto its = capacity::predict(model(), done->requests, r.batch);
      r.errors = capacity::judge(its);
      guesses.insert(guesses.end(), its.begin(), its.end());
      say(fmt::format("held out: {}: median error {}, p90 {}, bias {}", r.name,
                      percent(r.errors.median), percent(r.errors.p90), percent(r.errors.bias)));
      report_.held_out.push_back(std::move(r));
      held_out_.push_back(done->requests);
    }
    report_.errors = capacity::judge(guesses);
    report_.costs.median_error = report_.errors.median;
    report_.costs.p90_error = report_.errors.p90;
    report_.costs.bias = report_.errors.bias;
    return ok;
  }

  /// What a unit's price makes of them: it is the same whatever the batch happens to be.
  void judge_at_usual_batch() {
    std::vector<capacity::prediction> guesses;
    for (std::size_t i = 0; i < held_out_.size(); ++i) {
      const auto its = capacity::predict(model(), held_out_[i], model().about().usual_batch);
      report_.held_out[i].usual = capacity::judge(its);
      guesses.insert(guesses.end(), its.begin(), its.end());
    }
    report_.usual = capacity::judge(guesses);
    report_.costs.usual_median_error = report_.usual.median;
    report_.costs.usual_p90_error = report_.usual.p90;
    report_.costs.usual_bias = report_.usual.bias;
  }

  /// Closed loops of more and more connections, until the objective is missed twice in a row.
  expected<void> find_capacity() {
    if (s_.ttft_ms <= 0 && s_.tpot_ms <= 0) return ok;
    int missed = 0;
    for (const auto c : capacity_levels(s_.concurrency_max)) {
      const auto done = measure(capacity_load(scope_, c), 0, 0);
      if (!done) return done.error();
      capacity_level l;
      l.concurrency = c;
      l.batch = capacity::usual_batch_of(done->steady);
      l.ttft_p95_ms = done->ttft_p95_ms;
      l.tpot_p95_ms = done->tpot_p95_ms;
      l.minutes = done->minutes;
      for (const auto& r : done->steady) l.requests.push_back(r.shape);
      l.meets = (s_.ttft_ms <= 0 || l.ttft_p95_ms <= s_.ttft_ms) &&
                (s_.tpot_ms <= 0 || l.tpot_p95_ms <= s_.tpot_ms);
      l.mu_per_minute = mu_per_minute_of(l, report_.costs, all_engines_);
      say(fmt::format("capacity: {} at once: {:.2f} MU/min, p95 TTFT {:.0f} ms, TPOT {:.1f} ms{}",
                      c, l.mu_per_minute, l.ttft_p95_ms, l.tpot_p95_ms,
                      l.meets ? "" : ", beyond the objective"));
      missed = l.meets ? 0 : missed + 1;
      report_.levels.push_back(std::move(l));
      if (missed == 2) break;
    }
    choose_capacity(report_.levels, report_.costs, all_engines_);
    return ok;
  }

  /// Checked when it was fitted.
  capacity::cost_model model() const { return capacity::cost_model_of(report_.costs).value(); }

  // -- measuring -----------------------------------------------------------------------

  const http_target& target() const { return load_.targets.front(); }

  /// Runs a workload to its end, and reads what each of its requests has cost. `number` of `of` is
  /// for people; 0: it stands alone.
  expected<measured_workload> measure(const workload& w, std::size_t number, std::size_t of) {
    const auto name = number == 0 ? w.name : fmt::format("{}/{}: {}", number, of, w.name);
    plan_options p;
    p.bytes_per_token = bytes_per_token_;
    for (const auto& r : w.requests) p.trace.push_back({nanoseconds{0}, r.prompt, r.output, {}});
    p.max_tokens = {1, *std::max_element(scope_.outputs.begin(), scope_.outputs.end())};
    auto requests = plan{p};
    const auto longest = std::max_element(
        w.requests.begin(), w.requests.end(),
        [](const auto& a, const auto& b) { return a.prompt < b.prompt; });
    const auto shared = static_cast<std::uint32_t>(longest->prompt * bytes_per_token_ * w.shared);
    const prompt_maker prompts{scope_.seed + first_, shared, 1}, own{scope_.seed + first_, 0, 1};
    if (shared > 0)
      if (auto kept = keep_prefix(prompts, shared); !kept) return kept.error();
    auto options = load_;
    options.closed_loop = std::min<std::uint32_t>(w.concurrency,
                                                  static_cast<std::uint32_t>(w.requests.size()));
    recorder records{nanoseconds{0}};
    std::vector<answered_request> answered;
    load_hooks hooks;
    hooks.body = [&](planned_request r) {
      r.index = key_of(r);
      return make_body(body_, r, prompt_of(w, prompts, own, r));
    };
    hooks.request_id = [&](const planned_request& r) { return id_of(r); };
    hooks.answered = [&](const planned_request& r, const outcome& o) {
      if (o.error.empty()) answered.push_back({r, o});
    };
    hooks.progress = [&](std::uint64_t, std::uint64_t) {
      if (s_.progress)
        err_ << fmt::format("\r\x1b[K{}: {} of {} ", name, records.whole, w.requests.size())
             << std::flush;
    };
    const auto summary = run_load(options, requests, records, hooks);
    if (s_.progress) err_ << "\r\x1b[K" << std::flush;
    if (!summary) return summary.error();
    if (summary->interrupted) return error{"interrupted", "interrupted"};
    if (auto whole = all_whole(name, records); !whole) return whole.error();
    measured_workload m;
    const auto steady = after_the_first(answered, options.closed_loop);
    m.ttft_p95_ms = static_cast<double>(steady.first_token.percentile(p95)) / ns_per_ms;
    m.tpot_p95_ms = static_cast<double>(steady.per_token.percentile(p95)) / ns_per_ms;
    m.minutes = std::chrono::duration<double, std::ratio<60>>(steady.window()).count();
    std::size_t left_out = 0;
    for (const auto& x : answered) {
      auto cost = cost_of(id_of(x.planned));
      if (!cost && cost.error().code == "not_measured" &&
          ++left_out <= left_out_max(answered.size())) {
        say(fmt::format("{}: left out, {}", name, cost.error().message));
        continue;
      }
      if (!cost) return cost.error();
      m.requests.push_back(*cost);
      if (x.planned.index >= options.closed_loop) m.steady.push_back(*cost);
    }
    first_ += w.requests.size();
    report_.left_out += left_out;
    if (number > 0) say(name);
    return m;
  }

  /// Sends what a workload's prompts have in common once, so that all of them find it cached.
  expected<void> keep_prefix(const prompt_maker& prompts, std::uint32_t bytes) {
    plan_options p;
    p.prompt_bytes = {bytes, bytes};
    p.max_tokens = {1, 1};
    p.requests_max = scope_.engines;
    auto requests = plan{p};
    auto options = load_;
    options.closed_loop = 1;
    recorder records{nanoseconds{0}};
    load_hooks hooks;
    hooks.body = [&](planned_request r) {
      r.index = key_of(r);
      return make_body(body_, r, prompts.make(r));
    };
    const auto done = run_load(options, requests, records, hooks);
    if (!done) return done.error();
    if (done->interrupted) return error{"interrupted", "interrupted"};
    if (auto whole = all_whole("what prompts have in common", records); !whole)
      return whole.error();
    first_ += scope_.engines;
    return ok;
  }

  static expected<void> all_whole(const std::string& name, const recorder& records) {
    if (records.failed == 0) return ok;
    const auto& [kind, what] = *records.errors.begin();
    return error{"requests_failed",
                 fmt::format("{}: {} of {} requests failed ({}: {})", name, records.failed,
                             records.requests(), kind, what.first_message)};
  }

  /// Numbered through, so that no two prompts begin alike, of this run or of another.
  std::uint64_t key_of(const planned_request& r) const {
    return prompt_key(run_, first_ + r.index);
  }
  std::string id_of(const planned_request& r) const {
    return fmt::format("calibrate-{:08x}-{}", run_, first_ + r.index);
  }

  expected<capacity::measured_request> cost_of(const std::string& id) const {
    const auto until = std::chrono::steady_clock::now() + settle_wait;
    while (true) {
      const auto answer = get(target(), "/debug/requests/" + id, get_timeout);
      if (!answer) return answer.error();
      if (answer->status != 200)
        return error{"not_measured",
                     fmt::format("the server does not tell how request {} travelled (HTTP {})", id,
                                 answer->status)};
      auto cost = read_cost(answer->body);
      if (cost || cost.error().code != "not_settled" || std::chrono::steady_clock::now() > until)
        return cost;
      std::this_thread::sleep_for(settle_poll);
    }
  }

  void say(const std::string& line) {
    if (s_.progress) err_ << "\r\x1b[K";
    err_ << line << "\n" << std::flush;
  }

  const calibrate_settings& s_;
  calibration_scope scope_;
  std::ostream& err_;
  load_options load_;
  body_options body_;
  double bytes_per_token_ = bytes_per_token_assumed;
  std::uint32_t all_engines_ = 1;  ///< those that only prefill, too
  std::vector<std::vector<capacity::measured_request>> held_out_;
  std::uint64_t first_ = 0;  ///< number of the next request
  std::uint32_t run_ = std::random_device{}();
  calibrate_report report_;
};

}  // namespace

const capacity_level* best_of(const std::vector<capacity_level>& levels) {
  const capacity_level* best = nullptr;
  for (const auto& l : levels)
    if (l.meets && (best == nullptr || l.mu_per_minute > best->mu_per_minute)) best = &l;
  return best;
}

double mu_per_minute_of(const capacity_level& l, const config::calibration& costs,
                        std::uint32_t engines) {
  const auto model = capacity::cost_model_of(costs).value();
  double mu = 0;
  for (const auto& r : l.requests) mu += model.mu(r);
  return l.minutes > 0 ? mu / l.minutes / engines : 0;
}

void choose_capacity(std::vector<capacity_level>& levels, config::calibration& costs,
                     std::uint32_t engines) {
  const auto* best = best_of(levels);
  if (best == nullptr) return;
  auto& chosen = levels[static_cast<std::size_t>(best - levels.data())];
  chosen.chosen = true;
  costs.usual_batch = chosen.batch;
  for (auto& l : levels) l.mu_per_minute = mu_per_minute_of(l, costs, engines);
  costs.mu_per_minute = chosen.mu_per_minute;
}

std::size_t left_out_max(std::size_t requests) {
  constexpr std::size_t one_in = 33;
  return std::max<std::size_t>(1, requests / one_in);
}

recorder after_the_first(std::span<const answered_request> all, std::uint32_t connections) {
  recorder records{nanoseconds{0}};
  for (const auto& x : all)
    if (x.planned.index >= connections) records.record(x.planned.at, x.what);
  return records;
}

int run_calibrate(const calibrate_settings& settings, std::ostream& out, std::ostream& err) {
  const auto fail = [&](int code, const std::string& why) {
    err << "bench: " << why << "\n";
    return code;
  };
  // Now, and not after many minutes.
  std::vector<std::string> begun;
  const auto clean_up = [&] {
    std::error_code ignored;
    for (const auto& file : begun) std::filesystem::remove(file, ignored);
  };
  for (const auto& file : {settings.output, settings.json}) {
    if (file.empty()) continue;
    if (!std::ofstream{file + ".new", std::ios::app}) {
      clean_up();
      return fail(exit_usage, fmt::format("{}.new cannot be written", file));
    }
    begun.push_back(file + ".new");
  }
  const auto report = calibration_run{settings, err}.run();
  if (!report) {
    clean_up();
    return fail(report.error().code == "usage" ? exit_usage : exit_failed, report.error().message);
  }
  if (auto written = write_file(settings.output, config::print_calibration(report->costs));
      !written)
    return fail(exit_failed, written.error().message);
  if (!settings.json.empty())
    if (auto written = write_file(settings.json, json_of(*report)); !written)
      return fail(exit_failed, written.error().message);
  out << table_of(*report);
  if ((settings.ttft_ms > 0 || settings.tpot_ms > 0) && best_of(report->levels) == nullptr)
    return fail(exit_failed, "not even one request at a time meets the objective; the file has no "
                             "mu_per_minute");
  return 0;
}

}  // namespace troupe::bench
