#include "apps/console/console_command.hpp"

#include "actors/trust/certificate_files.hpp"
#include "apps/console/commands.hpp"
#include "apps/console/line_editor.hpp"
#include "config/check.hpp"
#include "config/parse.hpp"
#include "messages/base/exit_codes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <thread>

namespace troupe::apps {

namespace {

struct console_options {
  std::string config_file = "cluster.toml";
  std::string host;
  std::string person;  ///< whose certificate is shown
  bool json = false;
  std::vector<std::string> words;
};

void print(std::FILE* to, const std::string& text) {
  (void)std::fwrite(text.data(), 1, text.size(), to);
  (void)std::fflush(to);
}

int fail(int code, const std::string& why) {
  print(stderr, "troupe console: " + why + "\n");
  return code;
}

/// The host that was named, or else the first with an admin port.
const config::host* choose(const config::cluster& c, const std::string& name) {
  if (!name.empty()) return c.find_host(name);
  for (const auto& h : c.hosts)
    if (h.admin_port != 0) return &h;
  return nullptr;
}

/// Of the person that was named, or else of the only one who has a certificate here.
expected<std::shared_ptr<trust::credentials>> certificate_of(const config::cluster& c,
                                                             std::string person) {
  const trust::certificate_folder folder{c.section.certificates};
  if (person.empty()) {
    const auto all = trust::console_names(folder);
    if (all.size() != 1)
      return error{"no_certificate",
                   all.empty() ? fmt::format("{}: no console's certificate is there; `troupe cert "
                                             "console` makes one",
                                             folder.path)
                               : fmt::format("--as must say whose certificate to use: {}",
                                             fmt::join(all, ", "))};
    person = all.front();
  }
  return trust::credentials::load({folder.console(person), folder.console_key(person), folder.ca()},
                                  trust::tls_use::cluster);
}

/// Line by line, until the end of the input or `quit`. The last command's code; on a terminal the
/// person has seen how each went.
int converse(console::command_context& c) {
  const bool person = ::isatty(STDIN_FILENO) == 1;
  std::unique_ptr<console::line_editor> editor;
  if (person) {
    editor = std::make_unique<console::line_editor>(
        [&](const std::string& line) { return console::completions(line, c.hosts, c.pools); });
    c.out(fmt::format("connected to {}; `help` lists the commands, `quit` ends\n", c.host));
  }
  int code = exit_ok;
  while (true) {
    std::optional<std::string> line;
    if (person) {
      line = editor->read("troupe " + c.host + "> ");
    } else if (std::string text; std::getline(std::cin, text)) {
      line = text;
    }
    const auto words = console::words_of(line.value_or("quit"));
    if (!words.empty() && (words[0] == "quit" || words[0] == "exit")) break;
    code = console::run_command(c, words);
    // A script ends where it goes wrong.
    if (code == exit_address || (!person && code != exit_ok)) return code;
  }
  return person ? exit_ok : code;
}

int run(const console_options& o) {
  const auto loaded = config::load(o.config_file);
  if (!loaded) {
    for (const auto& p : loaded.problems) print(stderr, to_string(p) + "\n");
    return fail(exit_config, "the cluster file has problems");
  }
  const auto* host = choose(*loaded.value, o.host);
  if (host == nullptr)
    return fail(exit_config, o.host.empty()
                                 ? o.config_file + ": no [[host]] has an admin_port"
                                 : o.config_file + ": no [[host]] is called '" + o.host + "'");
  if (host->admin_port == 0)
    return fail(exit_config,
                to_string(host->where) + ": host '" + host->name + "' has no admin_port");
  console::terminal::trust_options by;
  if (config::console_uses_tls(*loaded.value, *host)) {
    auto credentials = certificate_of(*loaded.value, o.person);
    if (!credentials) return fail(exit_config, credentials.error().message);
    by = {*std::move(credentials), host->name};
  }
  auto link = console::terminal::connect(host->admin_address, host->admin_port, by);
  if (!link) return fail(exit_address, link.error().message);
  console::command_context c{*link,
                             host->name,
                             {},
                             {},
                             [file = o.config_file] {
                               const auto now = config::load(file);
                               return now ? now.value->digest : std::string{};
                             },
                             o.json,
                             [](const std::string& text) { print(stdout, text); },
                             [](const std::string& text) { print(stderr, text + "\n"); },
                             [](std::chrono::milliseconds t) { std::this_thread::sleep_for(t); }};
  for (const auto& h : loaded.value->hosts) c.hosts.push_back(h.name);
  for (const auto& p : loaded.value->pools) c.pools.push_back(p.name);
  return o.words.empty() ? converse(c) : console::run_command(c, o.words);
}

/// Whom to connect to, and how to answer.
void add_options(CLI::App* command, console_options& o) {
  command->add_option("--host", o.host,
                      "Host to connect to (default: the first with an admin_port)");
  command->add_option("--as", o.person,
                      "Name in the certificate to show, where the admin port is beyond loopback "
                      "(default: the only one there is)");
  command->add_flag("--json", o.json, "Answers for scripts");
}

}  // namespace

void add_reload_command(CLI::App& config, int& exit_code) {
  auto* command = config.add_subcommand(
      "reload", "Have a running cluster take over tenants, keys and limits of its cluster file");
  auto options = std::make_shared<console_options>();
  command->add_option("FILE", options->config_file, "Cluster file, as it is on all hosts by now")
      ->required();
  add_options(command, *options);
  options->words = {"reload"};
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

void add_console_command(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("console", "Look at a running cluster, and give it orders");
  auto options = std::make_shared<console_options>();
  command->add_option("--config", options->config_file, "Cluster file")
      ->envname("TROUPE_CONFIG")
      ->capture_default_str();
  add_options(command, *options);
  std::string list;
  for (const auto& x : console::commands())
    list += fmt::format("\n  {} {}\n      {}", x.name, x.arguments, x.help);
  command->footer("Commands (without one: line by line):" + list);
  command->prefix_command();
  command->callback([options, command, &exit_code] {
    // In their order, options of the commands' own among them.
    for (const auto& word : command->remaining())
      if (word == "--json")
        options->json = true;
      else
        options->words.push_back(word);
    exit_code = run(*options);
  });
}

}  // namespace troupe::apps
