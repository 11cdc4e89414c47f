// `troupe sim` without the rest of troupe, compiled for speed: thousands of seeds are run by it.

#include "apps/sim/sim_command.hpp"

#include <CLI/CLI.hpp>

int main(int argc, char** argv) {
  int exit_code = 0;
  CLI::App app{"Simulated clusters under faults."};
  app.require_subcommand(1);
  troupe::apps::add_sim_command(app, exit_code);
  CLI11_PARSE(app, argc, argv);
  return exit_code;
}
