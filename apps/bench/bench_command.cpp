#include "apps/bench/bench_command.hpp"

#include "apps/bench/bench_run.hpp"
#include "apps/bench/calibrate.hpp"

#include <unistd.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <vector>

namespace troupe::apps {

namespace {

using bench::bench_settings;
using bench::calibrate_settings;
using bench::target_settings;

constexpr double year_s = 366.0 * 24 * 3'600;
constexpr double factor_max = 1e6;

/// Seconds, or nothing of it.
CLI::Range seconds(double least) { return CLI::Range(least, year_s); }
constexpr double some_s = 1e-3;

void add_target_options(CLI::App& run, target_settings& s) {
  run.add_option(
         "--url", s.urls,
         "http:// or https://host:port of an OpenAI-compatible server; may be repeated: each new "
         "request goes to the next one whose GET /readyz says 200")
      ->allow_extra_args(false)
      ->required();
  run.add_option("--endpoint", s.kind, "chat or completions")
      ->check(CLI::IsMember({"chat", "completions"}))
      ->capture_default_str();
  run.add_option("--model", s.model, "Model to ask for (default: the first that the server lists)");
  run.add_option("--api-key", s.api_key, "Sent as a bearer token");
  run.add_option("--header", s.headers, "\"Name: value\", sent with each request; may be repeated")
      ->allow_extra_args(false);
  run.add_flag("--insecure", s.insecure, "With https: believe whatever certificate the server has");
  run.add_option("--ca-file", s.ca_file,
                 "With https: PEM file of the CAs to believe (default: the system's)");
  run.add_option("--wait-ready", s.wait_ready_s, "Seconds to wait for GET /readyz to say 200 first")
      ->check(seconds(0));
}

void add_schedule_options(CLI::App& run, bench_settings& s) {
  run.add_option("--rate", s.rate, "Open loop: requests per second, at random times (Poisson)")
      ->check(CLI::Range(1 / factor_max, factor_max));
  run.add_option("--connections", s.connections,
                 "Closed loop: connections that each send when their last answer has ended")
      ->check(CLI::Range(1, 100'000));
  run.add_option("--trace", s.trace,
                 "Open loop: times and lengths from CSV (TIMESTAMP,ContextTokens,GeneratedTokens) "
                 "or JSON lines (timestamp, input_length, output_length, hash_ids)");
  run.add_option("--speedup", s.speedup, "Of the trace")
      ->check(CLI::Range(1 / factor_max, factor_max))
      ->capture_default_str();
  run.add_option("--duration", s.duration_s, "Seconds of sending")->check(seconds(some_s));
  run.add_option("--requests", s.requests,
                 "Requests to send (default: 100, or what --duration or the trace brings)")
      ->check(CLI::PositiveNumber);
  run.add_option("--warmup", s.warmup_s, "Seconds at the start that are not measured")
      ->check(seconds(0));
  run.add_option("--seed", s.seed, "Of times, lengths and prompts")->capture_default_str();
}

void add_request_options(CLI::App& run, bench_settings& s) {
  run.add_option("--prompt-tokens", s.prompt_tokens,
                 "Length of prompts, N or MIN:MAX (even distribution), by --bytes-per-token");
  run.add_option("--prompt-bytes", s.prompt_bytes, "The same in bytes (default: 256)");
  run.add_option("--bytes-per-token", s.bytes_per_token, "Of the model's tokeniser in English text")
      ->check(CLI::Range(0.1, 100.0))
      ->capture_default_str();
  run.add_option("--shared-prefix-bytes", s.shared_prefix_bytes,
                 "The beginning that prompts have in common");
  run.add_option("--prefixes", s.prefixes, "How many such beginnings there are")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  run.add_option("--max-tokens", s.max_tokens,
                 "Length of answers, N or MIN:MAX; with a trace, a cap")
      ->capture_default_str();
  run.add_option("--temperature", s.temperature, "Sampling temperature (default: the server's)")
      ->check(CLI::Range(0.0, 2.0));
  run.add_flag("--ignore-eos", s.ignore_eos,
               "Ask for answers of full length, where the server knows ignore_eos");
  run.add_option("--extra-body", s.extra_body,
                 "A JSON object whose members are added to each request");
  run.add_flag("--no-stream", s.no_stream, "Ask for whole answers");
  run.add_flag("--no-usage", s.no_usage,
               "Don't ask streams for their usage; tokens are then counted by events");
}

void add_run_options(CLI::App& run, bench_settings& s) {
  run.add_option("--request-timeout", s.request_timeout_s, "Seconds from a request's intended time")
      ->check(seconds(some_s))
      ->capture_default_str();
  run.add_option("--drain-timeout", s.drain_timeout_s,
                 "Seconds for open answers after the last request was sent")
      ->check(seconds(some_s))
      ->capture_default_str();
  run.add_option("--connections-max", s.connections_max,
                 "Of an open loop; more requests wait, and their latency grows")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  run.add_option("--cpu-of", s.cpu_of,
                 "PID[,PID]: CPU time of these processes, per request and per token")
      ->delimiter(',');
  run.add_option("--json", s.json, "File for the report as JSON");
  run.add_option("--answers", s.answers,
                 "File for a line of JSON per answer: request, error, tokens, times, and a digest "
                 "of its text, to compare two runs with the same seed");
  run.add_flag("--strict", s.strict, "Exit with 1 if any answer was not whole");
}

/// A list of lengths, or of loads.
CLI::Option* add_numbers(CLI::App& run, const char* name, std::vector<std::uint32_t>& out,
                         std::uint32_t most, const char* doc) {
  return run.add_option(name, out, doc)
      ->delimiter(',')
      ->check(CLI::Range(std::uint32_t{1}, most))
      ->capture_default_str();
}

void add_calibrate_options(CLI::App& run, calibrate_settings& s) {
  constexpr std::uint32_t concurrency_most = 256;
  constexpr std::uint32_t tokens_most = 1'000'000;
  constexpr double ms_most = 3.6e6;
  run.add_option("-o,--output", s.output, "The calibration file, which a pool's `costs` names")
      ->required();
  add_numbers(run, "--concurrency", s.scope.concurrency, concurrency_most,
              "Requests at once, for each engine: of the sweep, and of what is held out");
  add_numbers(run, "--prompt-tokens", s.scope.prompts, tokens_most, "Prompts of the sweep");
  add_numbers(run, "--output-tokens", s.scope.outputs, tokens_most, "Answers of the sweep");
  run.add_option("--requests", s.scope.requests_min,
                 "Of each point of the sweep; at least two for each connection")
      ->check(CLI::Range(1U, bench::workload_requests_max))
      ->capture_default_str();
  run.add_option("--held-out", s.scope.held_out,
                 "Requests of each workload that is only guessed, not fitted")
      ->check(CLI::Range(1U, bench::workload_requests_max))
      ->capture_default_str();
  run.add_option("--ttft-ms", s.ttft_ms,
                 "Objective for the p95 of the time to the first token: the capacity is the most "
                 "that meets it (default: none, and without any objective no capacity)")
      ->check(CLI::Range(0.0, ms_most));
  run.add_option("--tpot-ms", s.tpot_ms, "The same of the time per further token")
      ->check(CLI::Range(0.0, ms_most));
  run.add_option("--concurrency-max", s.concurrency_max,
                 "Of the search for the capacity, for each engine")
      ->check(CLI::Range(1U, concurrency_most))
      ->capture_default_str();
  run.add_option("--request-timeout", s.request_timeout_s, "Seconds for each request")
      ->check(seconds(some_s))
      ->capture_default_str();
  run.add_option("--seed", s.scope.seed, "Of lengths and prompts")->capture_default_str();
  run.add_option("--json", s.json, "File for the report as JSON");
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("bench", "Measure any OpenAI-compatible server");
  command->require_subcommand(1);
  auto settings = std::make_shared<bench_settings>();
  auto* run = command->add_subcommand(
      "run",
      "Send requests on a schedule, which one of --rate, --connections and --trace says; latency "
      "counts from the time at which each was due");
  add_target_options(*run, *settings);
  add_schedule_options(*run, *settings);
  add_request_options(*run, *settings);
  add_run_options(*run, *settings);
  run->callback([settings, &exit_code] {
    settings->progress = ::isatty(STDERR_FILENO) == 1;
    exit_code = bench::run_bench(*settings, std::cout, std::cerr);
  });
  auto calibration = std::make_shared<calibrate_settings>();
  auto* calibrate = command->add_subcommand(
      "calibrate",
      "Measure what requests cost a running Troupe cluster that has nothing else to do, and write "
      "the file that a pool's `costs` names");
  add_target_options(*calibrate, *calibration);
  add_calibrate_options(*calibrate, *calibration);
  calibrate->callback([calibration, &exit_code] {
    calibration->progress = ::isatty(STDERR_FILENO) == 1;
    exit_code = bench::run_calibrate(*calibration, std::cout, std::cerr);
  });
}

}  // namespace troupe::apps
