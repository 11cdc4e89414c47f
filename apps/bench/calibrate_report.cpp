#include "apps/bench/calibrate.hpp"

#include <fmt/format.h>

#include <rapidjson/prettywriter.h>
#include <rapidjson/stringbuffer.h>

namespace troupe::bench {

namespace {

using json_writer = rapidjson::PrettyWriter<rapidjson::StringBuffer>;

void number(json_writer& w, const char* key, double value) {
  w.Key(key);
  w.Double(value);
}

void text(json_writer& w, const char* key, const std::string& value) {
  w.Key(key);
  w.String(value.c_str());
}

void errors(json_writer& w, const capacity::error_summary& e) {
  w.Key("requests");
  w.Uint64(e.count);
  number(w, "median_error", e.median);
  number(w, "p90_error", e.p90);
  number(w, "bias", e.bias);
}

/// The same where every workload is taken to run at the file's `usual_batch`.
void usual_errors(json_writer& w, const capacity::error_summary& e) {
  number(w, "usual_median_error", e.median);
  number(w, "usual_p90_error", e.p90);
  number(w, "usual_bias", e.bias);
}

}  // namespace

std::string table_of(const calibrate_report& r) {
  const auto& c = r.costs;
  std::string out = fmt::format("model                {}\n"
                                "device class         {}\n"
                                "one model unit       {:.4g} s, in steps of {:.2f} streams\n"
                                "fitted to            {} requests\n",
                                c.model, c.device_class, r.seconds_per_mu, c.usual_batch, r.fitted);
  if (r.left_out > 0)
    out += fmt::format("left out             {} requests, at which another attempt was made\n",
                       r.left_out);
  out += fmt::format("seconds              alpha {:.4g}, alpha2 {:.4g}, beta {:.4g}, beta_step "
                     "{:.4g}, gamma {:.4g}\n\n",
                     c.alpha, c.alpha2, c.beta, c.beta_step, c.gamma);
  out += fmt::format("{:<32} {:>8} {:>6} {:>8} {:>8} {:>8}\n", "held out", "requests", "batch",
                     "median", "p90", "bias");
  const auto row = [&](const std::string& name, double batch, const capacity::error_summary& e) {
    out += fmt::format("{:<32} {:>8} {:>6} {:>6.1f} % {:>6.1f} % {:>+6.1f} %\n", name, e.count,
                       batch > 0 ? fmt::format("{:.1f}", batch) : "", 100 * e.median, 100 * e.p90,
                       100 * e.bias);
  };
  for (const auto& h : r.held_out) row(h.name, h.batch, h.errors);
  row("all, each at its own batch", 0, r.errors);
  // As units are counted.
  row("all, at the usual batch", c.usual_batch, r.usual);
  if (r.levels.empty()) return out;
  out += fmt::format("\n{:>8} {:>10} {:>14} {:>14}\n", "at once", "MU/min", "p95 TTFT, ms",
                     "p95 TPOT, ms");
  for (const auto& l : r.levels)
    out += fmt::format("{:>8} {:>10.2f} {:>14.0f} {:>14.1f}  {}\n", l.concurrency, l.mu_per_minute,
                       l.ttft_p95_ms, l.tpot_p95_ms,
                       l.chosen  ? "capacity"
                       : l.meets ? ""
                                 : "beyond the objective");
  return out;
}

std::string json_of(const calibrate_report& r) {
  rapidjson::StringBuffer buffer;
  json_writer w{buffer};
  const auto& c = r.costs;
  w.StartObject();
  text(w, "model", c.model);
  text(w, "device_class", c.device_class);
  for (const auto& [key, value] :
       {std::pair{"alpha", c.alpha}, std::pair{"alpha2", c.alpha2}, std::pair{"beta", c.beta},
        std::pair{"beta_step", c.beta_step}, std::pair{"gamma", c.gamma},
        std::pair{"usual_batch", c.usual_batch}, std::pair{"mu_per_minute", c.mu_per_minute},
        std::pair{"seconds_per_mu", r.seconds_per_mu}})
    number(w, key, value);
  w.Key("fitted_requests");
  w.Uint64(r.fitted);
  w.Key("left_out_requests");
  w.Uint64(r.left_out);
  w.Key("held_out");
  w.StartObject();
  errors(w, r.errors);
  usual_errors(w, r.usual);
  w.Key("workloads");
  w.StartArray();
  for (const auto& h : r.held_out) {
    w.StartObject();
    text(w, "name", h.name);
    number(w, "batch", h.batch);
    errors(w, h.errors);
    usual_errors(w, h.usual);
    w.EndObject();
  }
  w.EndArray();
  w.EndObject();
  w.Key("capacity");
  w.StartArray();
  for (const auto& l : r.levels) {
    w.StartObject();
    w.Key("concurrency");
    w.Uint(l.concurrency);
    number(w, "batch", l.batch);
    number(w, "ttft_p95_ms", l.ttft_p95_ms);
    number(w, "tpot_p95_ms", l.tpot_p95_ms);
    number(w, "mu_per_minute", l.mu_per_minute);
    w.Key("meets");
    w.Bool(l.meets);
    w.EndObject();
  }
  w.EndArray();
  w.EndObject();
  return std::string{buffer.GetString(), buffer.GetSize()} + "\n";
}

}  // namespace troupe::bench
