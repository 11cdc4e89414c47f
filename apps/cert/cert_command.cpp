#include "apps/cert/cert_command.hpp"

#include "apps/cert/cert_actions.hpp"

#include <chrono>
#include <iostream>
#include <memory>

namespace troupe::apps {

namespace {

/// Longer would outlive the CA.
constexpr std::int64_t days_max = 3'650;

cert::surroundings here() { return {std::cout, std::cerr, std::chrono::system_clock::now()}; }

void add_days(CLI::App* command, const std::shared_ptr<std::int64_t>& days) {
  command->add_option("--days", *days, "How long new certificates hold")
      ->check(CLI::Range(std::int64_t{1}, days_max))
      ->capture_default_str();
}

}  // namespace

void add_cert_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("cert",
                                     "Make the certificates by which hosts trust each other");
  command->require_subcommand(1);
  auto file = std::make_shared<std::string>();
  auto days = std::make_shared<std::int64_t>(trust::certificate_validity.count());
  const auto add = [&](const char* name, const char* what) {
    auto* sub = command->add_subcommand(name, what);
    sub->add_option("FILE", *file, "Cluster file")->required();
    return sub;
  };

  auto* create = add("create", "Make a CA, and a certificate for each host that has none");
  auto new_ca = std::make_shared<bool>(false);
  create->add_flag("--new-ca", *new_ca, "Replace the CA and all certificates that are there");
  add_days(create, days);
  create->callback([=, &exit_code] {
    exit_code = cert::create({*file, trust::days{*days}, *new_ca}, here());
  });

  auto* renew = add("renew", "Replace hosts' certificates by new ones for the same keys");
  auto hosts = std::make_shared<std::vector<std::string>>();
  auto new_keys = std::make_shared<bool>(false);
  renew->add_option("HOST", *hosts, "Hosts (default: all)");
  renew->add_flag("--new-keys", *new_keys, "Make new keys, too");
  add_days(renew, days);
  renew->callback([=, &exit_code] {
    exit_code = cert::renew({*file, *hosts, trust::days{*days}, *new_keys}, here());
  });

  auto* console = add("console", "Make a certificate for a person's `troupe console`");
  auto name = std::make_shared<std::string>();
  auto role = std::make_shared<std::string>("viewer");
  auto replace = std::make_shared<bool>(false);
  console->add_option("NAME", *name, "Of the person")->required();
  console->add_option("--role", *role, "operator: may give orders; viewer: may look")
      ->check(CLI::IsMember({"operator", "viewer"}))
      ->capture_default_str();
  console->add_flag("--replace", *replace, "Also where there is one of this name");
  add_days(console, days);
  console->callback([=, &exit_code] {
    exit_code = cert::make_console(
        {*file, *name, trust::role_from(*role), trust::days{*days}, *replace}, here());
  });

  auto* show = add("show", "List the certificates: until when they hold, and what is wrong");
  show->callback([=, &exit_code] { exit_code = cert::show(*file, here()); });
}

}  // namespace troupe::apps
