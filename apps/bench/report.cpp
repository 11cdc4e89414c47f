#include "apps/bench/report.hpp"

#include <fmt/format.h>
#include <rapidjson/prettywriter.h>
#include <rapidjson/stringbuffer.h>

#include <string_view>

namespace troupe::bench {

namespace {

struct named_histogram {
  const char* title;
  const char* key;
  const histogram recorder::*values;
};

constexpr named_histogram histograms[] = {
    {"first token", "first_token_ms", &recorder::first_token},
    {"between tokens", "between_tokens_ms", &recorder::between_tokens},
    {"per token, by answer", "per_token_ms", &recorder::per_token},
    {"whole answer", "whole_answer_ms", &recorder::whole_answer},
    {"send delay", "send_delay_ms", &recorder::send_delay}};

struct named_percentile {
  const char* name;
  double percent;
};

constexpr named_percentile percentiles[] = {{"p50", 50}, {"p90", 90}, {"p99", 99}, {"p99.9", 99.9}};

double ms(std::uint64_t ns) { return static_cast<double>(ns) / 1e6; }
double seconds(nanoseconds t) { return static_cast<double>(t.count()) / 1e9; }

double per(double amount, double of) { return of > 0 ? amount / of : 0; }
double per_second(std::uint64_t n, nanoseconds window) {
  return per(static_cast<double>(n), seconds(window));
}

/// Microseconds of CPU for each of `n`.
double cpu_us(nanoseconds cpu, std::uint64_t n) {
  return per(static_cast<double>(cpu.count()) / 1e3, static_cast<double>(n));
}

nanoseconds sum(const std::vector<cpu_use>& uses) {
  nanoseconds total{0};
  for (const auto& use : uses) total += use.time.value_or(nanoseconds{0});
  return total;
}

std::string cpu_line(const std::string& name, nanoseconds cpu, const run_report& r) {
  return fmt::format("  {:<28} {:>8.2f} {:>14.1f} {:>14.2f}\n", name,
                     per(seconds(cpu), seconds(r.cpu_window)), cpu_us(cpu, r.records->requests()),
                     cpu_us(cpu, r.records->completion_tokens));
}

std::string cpu_table(const run_report& r) {
  auto out = fmt::format("\n  {:<28} {:>8} {:>14} {:>14}\n", "CPU", "cores", "us/request",
                         "us/token");
  for (const auto& use : r.cpu) {
    const auto name = fmt::format("{} ({})", use.name, use.pid);
    if (use.time)
      out += cpu_line(name, *use.time, r);
    else
      out += fmt::format("  {:<28} ended during the run\n", name);
  }
  if (r.cpu.size() > 1) out += cpu_line("all of these", sum(r.cpu), r);
  return out + cpu_line("this program", r.own_cpu, r);
}

using json_writer = rapidjson::PrettyWriter<rapidjson::StringBuffer>;

void text(json_writer& w, std::string_view value) {
  w.String(value.data(), static_cast<rapidjson::SizeType>(value.size()));
}

void write_histogram(json_writer& w, const histogram& h) {
  w.StartObject();
  w.Key("count");
  w.Uint64(h.count());
  for (const auto& p : percentiles) {
    w.Key(p.name);
    w.Double(ms(h.percentile(p.percent)));
  }
  w.Key("max");
  w.Double(ms(h.max()));
  w.Key("mean");
  w.Double(h.mean() / 1e6);
  w.EndObject();
}

void write_cpu(json_writer& w, const char* name, int pid, nanoseconds cpu, const run_report& r) {
  w.StartObject();
  w.Key("name");
  w.String(name);
  w.Key("pid");
  w.Int(pid);
  w.Key("cpu_s");
  w.Double(seconds(cpu));
  w.Key("cores");
  w.Double(per(seconds(cpu), seconds(r.cpu_window)));
  w.Key("us_per_request");
  w.Double(cpu_us(cpu, r.records->requests()));
  w.Key("us_per_token");
  w.Double(cpu_us(cpu, r.records->completion_tokens));
  w.EndObject();
}

void write_number(json_writer& w, const char* key, std::uint64_t value) {
  w.Key(key);
  w.Uint64(value);
}

void write_number(json_writer& w, const char* key, double value) {
  w.Key(key);
  w.Double(value);
}

void write_errors(json_writer& w, const recorder& records) {
  w.Key("errors");
  w.StartObject();
  for (const auto& [kind, e] : records.errors) {
    text(w, kind);
    w.StartObject();
    write_number(w, "count", e.count);
    w.Key("first_message");
    text(w, e.first_message);
    w.EndObject();
  }
  w.EndObject();
}

}  // namespace

std::string table_of(const run_report& r) {
  const auto& records = *r.records;
  std::string out;
  for (const auto& [name, value] : r.settings) out += fmt::format("  {:<28} {}\n", name, value);
  out += fmt::format("\n  {:<28} {} measured: {} whole, {} failed; {} sent in {:.1f} s{}\n",
                     "requests", records.requests(), records.whole, records.failed, r.load.sent,
                     seconds(r.load.sending), r.load.interrupted ? ", interrupted" : "");
  out += fmt::format("  {:<28} {:.2f} requests/s, {:.1f} tokens/s over {:.1f} s\n", "throughput",
                     per_second(records.whole, records.window()),
                     per_second(records.completion_tokens, records.window()),
                     seconds(records.window()));
  out += fmt::format("  {:<28} {} in the prompts ({} of them cached), {} in the answers\n",
                     "tokens", records.prompt_tokens, records.cached_tokens,
                     records.completion_tokens);

  out += fmt::format("\n  {:<28}", "ms");
  for (const auto& p : percentiles) out += fmt::format(" {:>10}", p.name);
  out += fmt::format(" {:>10} {:>10}\n", "max", "mean");
  for (const auto& h : histograms) {
    const auto& values = records.*h.values;
    if (values.count() == 0) continue;
    out += fmt::format("  {:<28}", h.title);
    for (const auto& p : percentiles)
      out += fmt::format(" {:>10.2f}", ms(values.percentile(p.percent)));
    out += fmt::format(" {:>10.2f} {:>10.2f}\n", ms(values.max()), values.mean() / 1e6);
  }
  if (!records.errors.empty()) out += '\n';
  for (const auto& [kind, e] : records.errors)
    out += fmt::format("  {:<28} {}{}\n", "error " + kind, e.count,
                       e.first_message.empty() ? "" : "; the first: " + e.first_message);
  return out + cpu_table(r);
}

std::string json_of_answer(const planned_request& request, const outcome& o) {
  rapidjson::StringBuffer buffer;
  rapidjson::Writer<rapidjson::StringBuffer> w{buffer};
  w.StartObject();
  w.Key("request");
  w.Uint64(request.index);
  w.Key("error");
  w.String(o.error.c_str());
  w.Key("message");
  w.String(o.message.c_str());
  w.Key("tokens");
  w.Uint64(o.tokens());
  w.Key("prompt_tokens");
  w.Uint64(o.prompt_tokens.value_or(0));
  w.Key("cached_tokens");
  w.Uint64(o.cached_tokens);
  const auto number_or_null = [&w](const char* key, std::optional<double> value) {
    w.Key(key);
    value ? w.Double(*value) : w.Null();
  };
  number_or_null("at_ms", static_cast<double>(request.at.count()) / 1e6);
  number_or_null("first_token_ms",
                 o.first_token ? std::optional{static_cast<double>(o.first_token->count()) / 1e6}
                               : std::nullopt);
  number_or_null("end_ms", static_cast<double>(o.end.count()) / 1e6);
  number_or_null("retry_after_s", o.retry_after_s);
  w.Key("digest");
  w.String(fmt::format("{:016x}", o.text_digest).c_str());
  w.EndObject();
  return {buffer.GetString(), buffer.GetSize()};
}

std::string json_of(const run_report& r) {
  const auto& records = *r.records;
  rapidjson::StringBuffer buffer;
  json_writer w{buffer};
  w.SetIndent(' ', 2);
  w.StartObject();
  w.Key("settings");
  w.StartObject();
  for (const auto& [name, value] : r.settings) {
    text(w, name);
    text(w, value);
  }
  w.EndObject();
  write_number(w, "sent", r.load.sent);
  write_number(w, "requests", records.requests());
  write_number(w, "whole", records.whole);
  write_number(w, "failed", records.failed);
  write_number(w, "connections", r.load.connections);
  write_number(w, "resent", r.load.resent);
  w.Key("interrupted");
  w.Bool(r.load.interrupted);
  write_number(w, "window_s", seconds(records.window()));
  write_number(w, "requests_per_second", per_second(records.whole, records.window()));
  write_number(w, "tokens_per_second", per_second(records.completion_tokens, records.window()));
  write_number(w, "prompt_tokens", records.prompt_tokens);
  write_number(w, "cached_tokens", records.cached_tokens);
  write_number(w, "completion_tokens", records.completion_tokens);
  for (const auto& h : histograms) {
    w.Key(h.key);
    write_histogram(w, records.*h.values);
  }
  write_errors(w, records);
  w.Key("cpu");
  w.StartArray();
  for (const auto& use : r.cpu)
    if (use.time) write_cpu(w, use.name.c_str(), use.pid, *use.time, r);
  w.EndArray();
  w.Key("own_cpu");
  write_cpu(w, "troupe bench", 0, r.own_cpu, r);
  w.EndObject();
  return std::string{buffer.GetString(), buffer.GetSize()} + "\n";
}

}  // namespace troupe::bench
