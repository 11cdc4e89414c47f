#include "tools/bench/router/measure.hpp"

#include <CLI/CLI.hpp>

/// What a router shard costs on one core, and how well it chooses.
int main(int argc, char** argv) {
  using namespace troupe::bench;
  CLI::App app{"Measures router shards: the block index, decisions, and choices on a trace."};
  app.require_subcommand(1);
  setup s;
  auto add = [&](const char* name, const char* about) {
    auto* c = app.add_subcommand(name, about);
    c->add_option("--workers", s.workers)->capture_default_str();
    c->add_option("--blocks", s.blocks)->capture_default_str();
    c->add_option("--chain-blocks", s.chain_blocks)->capture_default_str();
    c->add_option("--shared-blocks", s.shared_blocks)->capture_default_str();
    c->add_option("--seed", s.seed)->capture_default_str();
    return c;
  };
  auto* index = add("index", "updates per second, memory, longest prefixes");
  index->add_option("--subset", s.subset)->capture_default_str();
  auto* decide = add("decide", "time of a decision");
  trace_setup t;
  auto* trace = app.add_subcommand("trace", "hit rate and balance on the Mooncake trace");
  trace
      ->add_option("file", t.path,
                   "JSON lines with timestamp, input_length, output_length, "
                   "hash_ids")
      ->required();
  trace->add_option("--workers", t.workers)->capture_default_str();
  trace->add_option("--shards", t.shards)->capture_default_str();
  trace->add_option("--kv-share", t.kv_share, "of all different blocks, all workers together")
      ->capture_default_str();
  trace->add_option("--prefill-tokens-per-second", t.prefill_tokens_per_second)
      ->capture_default_str();
  trace->add_option("--others-weight", t.others_weight, "negative: the policy's own")
      ->capture_default_str();
  trace->add_option("--seed", t.seed)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (*index) bench_index(s);
  if (*decide) {
    bench_decisions(s, false);
    bench_decisions(s, true);
  }
  if (*trace && !bench_trace(t)) return 1;
  return 0;
}
