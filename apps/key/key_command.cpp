#include "apps/key/key_command.hpp"

#include "actors/admission/key_ring.hpp"
#include "config/values.hpp"
#include "messages/base/exit_codes.hpp"

#include <fmt/format.h>

#include <iostream>
#include <memory>

namespace troupe::apps {

int create_key(const std::string& tenant, std::ostream& out, std::ostream& err) {
  if (!config::is_name(tenant)) {
    err << fmt::format("troupe key: '{}' is no name: letters, digits, '-', '_' and inner dots, at "
                       "most {} long\n",
                       tenant, config::name_chars_max);
    return exit_usage;
  }
  const auto key = admission::make_key();
  if (key.empty()) {
    err << "troupe key: the system gives no random numbers\n";
    return exit_failure;
  }
  out << fmt::format("API key, which is shown only now:\n"
                     "  {}\n"
                     "For the cluster file, which holds its hash alone (another key of the same "
                     "tenant goes into the same `keys`):\n"
                     "  [[tenant]]\n"
                     "  name = \"{}\"\n"
                     "  keys = [\"{}\"]\n",
                     key, tenant, admission::to_hex(admission::hash_key(key)));
  return exit_ok;
}

void add_key_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("key", "Make API keys for tenants");
  command->require_subcommand(1);
  auto* create = command->add_subcommand(
      "create", "Print a new API key, once, and its hash as the cluster file wants it");
  auto tenant = std::make_shared<std::string>();
  create->add_option("TENANT", *tenant, "Name of the tenant")->required();
  create->callback([tenant, &exit_code] { exit_code = create_key(*tenant, std::cout, std::cerr); });
}

}  // namespace troupe::apps
