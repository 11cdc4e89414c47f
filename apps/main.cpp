#include "apps/cert/cert_command.hpp"
#include "apps/config_command.hpp"
#include "apps/console/console_command.hpp"
#include "apps/key/key_command.hpp"
#include "apps/node/node_command.hpp"
#include "gpu/transfer/ucx/library.hpp"
#include "messages/base/exit_codes.hpp"
#if __has_include("apps/bench/bench_command.hpp")
#include "apps/bench/bench_command.hpp"
#endif
#if __has_include("apps/engine_command.hpp")
#include "apps/engine_command.hpp"
#endif

#if __has_include("apps/sim/sim_command.hpp")
#include "apps/sim/sim_command.hpp"
#endif

#include <CLI/CLI.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <iostream>

namespace {

/// A standard stream that was closed would be the number of the next descriptor, and what is logged
/// would go into a link, say.
void open_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) == -1) (void)::open("/dev/null", O_RDWR);
}

/// A script that has its output in a file on a full disk must not take it for whole.
int written_out(int exit_code) {
  const bool whole = static_cast<bool>(std::cout.flush()) && std::fflush(stdout) == 0 &&
                     std::ferror(stdout) == 0;
  if (whole || exit_code != troupe::exit_ok) return exit_code;
  std::fprintf(stderr, "troupe: standard output could not be written whole\n");
  return troupe::exit_failure;
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  // Before anything can crash, and in each process: the library is there whether it is used or not.
  troupe::transfer::ucx::prepare_library();
  int exit_code = troupe::exit_ok;
  CLI::App app{"Troupe serves language models on a fleet of machines."};
  app.set_version_flag("--version", "troupe " TROUPE_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(36);

  troupe::apps::add_node_command(app, exit_code);
#if __has_include("apps/engine_command.hpp")
  troupe::apps::add_engine_command(app, exit_code);
#endif
#if __has_include("apps/bench/bench_command.hpp")
  troupe::apps::add_bench_command(app, exit_code);
#endif
#if __has_include("apps/sim/sim_command.hpp")
  troupe::apps::add_sim_command(app, exit_code);
#endif
  troupe::apps::add_config_command(app, exit_code);
  troupe::apps::add_reload_command(*app.get_subcommand("config"), exit_code);
  troupe::apps::add_cert_command(app, exit_code);
  troupe::apps::add_key_command(app, exit_code);
  troupe::apps::add_console_command(app, exit_code);

  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& e) {
    // CLI11 only says that a subcommand is required, also when there is one that it doesn't know.
    const auto* in = &app;
    while (!in->get_subcommands().empty()) in = in->get_subcommands().front();
    const auto unknown = in->remaining();
    if (in->get_require_subcommand_min() == 0 || unknown.empty()) {
      app.exit(e);
    } else {
      std::fprintf(stderr, "there is no subcommand '%s'\nRun with --help for more information.\n",
                   unknown.front().c_str());
    }
    return troupe::exit_usage;
  } catch (const CLI::ParseError& e) {
    // CLI11's own codes are above 100; scripts get one for all misuse.
    return app.exit(e) == 0 ? troupe::exit_ok : troupe::exit_usage;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "troupe: internal error: %s\n", e.what());
    return troupe::exit_internal;
  }
  // A node serves on whatever becomes of those who look at what it says.
  const bool serves = app.got_subcommand("node") || app.got_subcommand("engine");
  return serves ? exit_code : written_out(exit_code);
}
