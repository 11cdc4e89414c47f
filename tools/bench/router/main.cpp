#include "tools/bench/router/measure.hpp"

#include <CLI/CLI.hpp>

/// What a router shard's parts cost on one core.
int main(int argc, char** argv) {
  CLI::App app{"Measures a router shard: its block index."};
  app.require_subcommand(1);
  troupe::bench::index_setup index;
  auto* i = app.add_subcommand("index", "updates per second, memory, longest prefixes");
  i->add_option("--workers", index.workers)->capture_default_str();
  i->add_option("--blocks", index.blocks)->capture_default_str();
  i->add_option("--chain-blocks", index.chain_blocks)->capture_default_str();
  i->add_option("--shared-blocks", index.shared_blocks)->capture_default_str();
  i->add_option("--subset", index.subset)->capture_default_str();
  i->add_option("--seed", index.seed)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (*i) troupe::bench::bench_index(index);
  return 0;
}
