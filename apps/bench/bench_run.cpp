#include "apps/bench/bench_run.hpp"

#include "apps/bench/cpu_time.hpp"
#include "apps/bench/load.hpp"
#include "apps/bench/prompts.hpp"
#include "apps/bench/report.hpp"
#include "apps/bench/request_body.hpp"

#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <ostream>
#include <string_view>

namespace troupe::bench {

namespace {

constexpr int exit_failed = 1;
constexpr int exit_usage = 2;
constexpr std::uint32_t default_prompt_bytes = 256;
constexpr double prompt_bytes_max = 64.0 * (1U << 20U);
constexpr std::uint64_t default_requests = 100;

nanoseconds time_of(double s) { return nanoseconds{static_cast<std::int64_t>(s * 1e9)}; }
std::chrono::milliseconds ms_of(double s) {
  return std::chrono::milliseconds{static_cast<std::int64_t>(s * 1e3)};
}

std::optional<std::uint32_t> number(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc{} && end == text.data() + text.size() ? std::optional{value}
                                                                    : std::nullopt;
}

expected<length_range> parse_range(const char* option, std::string_view text) {
  const auto colon = text.find(':');
  const auto min = number(text.substr(0, colon));
  const auto max = colon == std::string_view::npos ? min : number(text.substr(colon + 1));
  if (!min || !max || *min == 0 || *max < *min)
    return error{"usage",
                 fmt::format("{} is \"{}\"; expected N or MIN:MAX, from 1 on", option, text)};
  return length_range{*min, *max};
}

expected<length_range> prompt_range(const bench_settings& s) {
  if (!s.prompt_bytes.empty()) return parse_range("--prompt-bytes", s.prompt_bytes);
  if (s.prompt_tokens.empty()) return length_range{default_prompt_bytes, default_prompt_bytes};
  auto range = parse_range("--prompt-tokens", s.prompt_tokens);
  if (!range) return range;
  if (range->max * s.bytes_per_token > prompt_bytes_max)
    return error{"usage", "--prompt-tokens is too large"};
  return length_range{static_cast<std::uint32_t>(range->min * s.bytes_per_token),
                      static_cast<std::uint32_t>(range->max * s.bytes_per_token)};
}

/// One run, from settings to report.
class bench {
 public:
  bench(const bench_settings& settings, std::ostream& err)
      : s_(settings), err_(err), records_(time_of(settings.warmup_s)) {}

  /// Errors: `usage` for settings that make no sense; others when the server is out of reach.
  expected<run_report> run() {
    for (const auto step :
         {&bench::take_schedule, &bench::take_lengths, &bench::take_target, &bench::take_body})
      if (auto done = (this->*step)(); !done) return done.error();
    return measure();
  }

 private:
  expected<void> take_schedule() {
    const int schedules = (s_.rate > 0 ? 1 : 0) + (s_.connections > 0 ? 1 : 0) +
                          (s_.trace.empty() ? 0 : 1);
    if (schedules != 1)
      return error{"usage",
                   "say how requests come: exactly one of --rate, --connections and --trace"};
    if (s_.trace.empty() && s_.speedup != 1)
      return error{"usage", "--speedup has no effect without --trace"};
    plan_.seed = s_.seed;
    plan_.rate_per_s = s_.rate;
    plan_.speedup = s_.speedup;
    if (s_.duration_s > 0) plan_.duration = load_.duration = time_of(s_.duration_s);
    if (s_.requests > 0)
      plan_.requests_max = s_.requests;
    else if (s_.duration_s <= 0 && s_.trace.empty())
      plan_.requests_max = default_requests;
    if (s_.trace.empty()) return ok;
    auto trace = load_trace(s_.trace);
    if (!trace) return error{"usage", trace.error().message};
    plan_.trace = *std::move(trace);
    return ok;
  }

  expected<void> take_lengths() {
    if (!s_.trace.empty() &&
        (!s_.prompt_bytes.empty() || !s_.prompt_tokens.empty() || s_.shared_prefix_bytes > 0))
      return error{"usage", "--prompt-bytes, --prompt-tokens and --shared-prefix-bytes have no "
                            "effect with --trace, which brings its own prompts"};
    if (!s_.prompt_bytes.empty() && !s_.prompt_tokens.empty())
      return error{"usage", "--prompt-bytes and --prompt-tokens contradict each other"};
    const auto prompts = prompt_range(s_);
    if (!prompts) return prompts.error();
    const auto answers = parse_range("--max-tokens", s_.max_tokens);
    if (!answers) return answers.error();
    plan_.prompt_bytes = *prompts;
    plan_.max_tokens = *answers;
    plan_.bytes_per_token = s_.bytes_per_token;
    plan_.prefixes = s_.prefixes;
    return ok;
  }

  expected<void> take_target() {
    auto targets = targets_of(s_);
    if (!targets) return targets.error();
    load_.targets = *std::move(targets);
    load_.closed_loop = s_.connections;
    load_.connections_max = s_.connections_max;
    load_.request_timeout = ms_of(s_.request_timeout_s);
    load_.drain_timeout = ms_of(s_.drain_timeout_s);
    return ok;
  }

  expected<void> take_body() {
    body_.kind = s_.kind == "chat" ? endpoint::chat : endpoint::completions;
    body_.stream = !s_.no_stream;
    body_.usage = !s_.no_usage;
    body_.ignore_eos = s_.ignore_eos;
    body_.temperature = s_.temperature;
    if (!s_.extra_body.empty()) {
      auto extra = parse_extra_body(s_.extra_body);
      if (!extra) return error{"usage", fmt::format("--extra-body: {}", extra.error().message)};
      body_.extra = *std::move(extra);
    }
    load_.path = path_of(body_.kind);
    body_.model = s_.model;
    if (!body_.model.empty()) return ok;
    auto model = first_model(load_.targets.front());
    if (!model) return model.error();
    body_.model = *std::move(model);
    return ok;
  }

  expected<run_report> measure() {
    const prompt_maker prompts{s_.seed, s_.shared_prefix_bytes,
                               static_cast<std::uint32_t>(trace_block_tokens * s_.bytes_per_token)};
    load_hooks hooks;
    hooks.body = [&](const planned_request& r) { return make_body(body_, r, prompts.make(r)); };
    hooks.measuring = [&] { begin_ = read_cpu(); };
    if (s_.progress)
      hooks.progress = [&](std::uint64_t sent, std::uint64_t open) {
        err_ << fmt::format("\r{} sent, {} open, {} whole, {} failed ", sent, open, records_.whole,
                            records_.failed)
             << std::flush;
      };
    std::ofstream answers;
    if (!s_.answers.empty()) {
      answers.open(s_.answers);
      if (!answers) return error{"usage", fmt::format("{} cannot be written", s_.answers)};
      hooks.answered = [&](const planned_request& r, const outcome& o) {
        answers << json_of_answer(r, o) << "\n";
      };
    }
    auto requests = plan{plan_};
    const auto summary = run_load(load_, requests, records_, hooks);
    const auto end = read_cpu();
    if (s_.progress) err_ << "\r\x1b[K" << std::flush;
    if (!summary) return summary.error();
    return report(*summary, end);
  }

  struct cpu_reading {
    std::chrono::steady_clock::time_point at;
    std::vector<std::optional<nanoseconds>> of;
    nanoseconds own{0};
  };

  cpu_reading read_cpu() const {
    cpu_reading reading{std::chrono::steady_clock::now(), {}, own_cpu_time()};
    for (const auto pid : s_.cpu_of) reading.of.push_back(cpu_time_of(pid));
    return reading;
  }

  run_report report(const load_summary& summary, const cpu_reading& end) const {
    run_report r;
    r.settings = {{"url", urls()},
                  {"model", body_.model},
                  {"schedule", schedule()},
                  {"prompts", prompts()},
                  {"answers", fmt::format("at most {} tokens{}{}", s_.max_tokens,
                                          body_.stream ? ", streamed" : "",
                                          body_.ignore_eos ? ", end token ignored" : "")},
                  {"warm-up", fmt::format("{} s", s_.warmup_s)},
                  {"seed", fmt::format("{}", s_.seed)}};
    r.load = summary;
    r.records = &records_;
    if (!begin_) return r;
    r.cpu_window = end.at - begin_->at;
    r.own_cpu = end.own - begin_->own;
    for (std::size_t i = 0; i < s_.cpu_of.size(); ++i) {
      cpu_use use{name_of(s_.cpu_of[i]), s_.cpu_of[i], std::nullopt};
      if (begin_->of[i] && end.of[i]) use.time = *end.of[i] - *begin_->of[i];
      r.cpu.push_back(std::move(use));
    }
    return r;
  }

  std::string urls() const {
    std::string all;
    for (const auto& t : load_.targets) all += (all.empty() ? "" : ", ") + t.url() + load_.path;
    return all;
  }

  std::string schedule() const {
    if (s_.connections > 0) return fmt::format("closed loop of {} connections", s_.connections);
    if (!s_.trace.empty()) return fmt::format("trace {}, {} times as fast", s_.trace, s_.speedup);
    return fmt::format("Poisson, {} requests/s", s_.rate);
  }

  std::string prompts() const {
    if (!s_.trace.empty())
      return fmt::format("as in the trace, {} bytes per token", s_.bytes_per_token);
    auto out = fmt::format("{} to {} bytes", plan_.prompt_bytes.min, plan_.prompt_bytes.max);
    if (s_.shared_prefix_bytes > 0)
      out += fmt::format(", of which {} shared ({} different)", s_.shared_prefix_bytes,
                         s_.prefixes);
    return out;
  }

  const bench_settings& s_;
  std::ostream& err_;
  plan_options plan_;
  load_options load_;
  body_options body_;
  recorder records_;
  std::optional<cpu_reading> begin_;
};

}  // namespace

int run_bench(const bench_settings& settings, std::ostream& out, std::ostream& err) {
  // Now, and not after an hour's load.
  if (!settings.json.empty() && !std::ofstream{settings.json, std::ios::app}) {
    err << fmt::format("bench: {} cannot be written\n", settings.json);
    return exit_usage;
  }
  bench b{settings, err};
  const auto report = b.run();
  if (!report) {
    err << "bench: " << report.error().message << "\n";
    return report.error().code == "usage" ? exit_usage : exit_failed;
  }
  out << table_of(*report);
  if (!settings.json.empty()) {
    std::ofstream file{settings.json};
    file << json_of(*report);
    if (!file.flush()) {
      err << fmt::format("bench: {} cannot be written\n", settings.json);
      return exit_failed;
    }
  }
  const auto& records = *report->records;
  return records.whole == 0 || (settings.strict && records.failed > 0) ? exit_failed : 0;
}

}  // namespace troupe::bench
