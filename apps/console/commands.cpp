#include "apps/console/commands.hpp"

#include "actors/console/reports.hpp"
#include "apps/console/views.hpp"
#include "messages/base/exit_codes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

namespace troupe::apps::console {

namespace {

using troupe::console::host_books;

int usage(command_context& c, const std::string& why) {
  c.err(why + "; `help` lists the commands");
  return exit_usage;
}

int failed(command_context& c, const error& why) {
  c.err(why.message);
  return why.code == "connection_lost" ? exit_address : exit_failure;
}

/// Those that did not answer, and reports of failure, are told; whether there were any.
bool tell_silent(command_context& c, const answer& a) {
  bool any = false;
  for (const auto& [host, why] : a.silent) {
    c.err(fmt::format("host {}: {}", printable(host), printable(why)));
    any = true;
  }
  for (const auto& m : a.reports) {
    msg::view<msg::ConsoleReply> in{m};
    if (!in->getReport().isFailure()) continue;
    const auto f = in->getReport().getFailure();
    c.err(fmt::format("host {}: {}", printable(in->getReport().getHost().cStr()),
                      printable(f.getMessage().cStr())));
    any = true;
  }
  return any;
}

template <class F>
void each_report(const answer& a, F f) {
  for (const auto& m : a.reports) {
    msg::view<msg::ConsoleReply> in{m};
    if (!in->getReport().isFailure()) f(in->getReport());
  }
}

template <class Write>
void print_json(command_context& c, Write write_it) {
  rapidjson::StringBuffer buffer;
  json_writer w{buffer};
  write_it(w);
  c.out(std::string{buffer.GetString(), buffer.GetSize()} + "\n");
}

/// Words are the hosts to ask: one at most.
bool host_of(command_context& c, const std::vector<std::string>& words,
             std::vector<std::string>& hosts) {
  if (words.size() > 1) return usage(c, "one host at most is named"), false;
  if (words.empty()) return true;
  if (std::find(c.hosts.begin(), c.hosts.end(), words[0]) == c.hosts.end())
    return usage(c, fmt::format("the cluster file has no host '{}'", words[0])), false;
  hosts = words;
  return true;
}

using fill = void (*)(msg::NodeQuery::Builder);
using add_rows = void (*)(table&, msg::NodeReport::Reader);

int show_table(command_context& c, const std::vector<std::string>& hosts, fill question,
               add_rows add) {
  auto a = c.link.ask(hosts, question);
  if (!a) return failed(c, a.error());
  table t;
  each_report(*a, [&](msg::NodeReport::Reader r) { add(t, r); });
  if (c.json)
    print_json(c, [&](json_writer& w) { table_json(w, t); });
  else if (t.rows.empty())
    c.out("none\n");
  else
    c.out(to_text(t));
  return tell_silent(c, *a) ? exit_failure : exit_ok;
}

int tree(command_context& c, const std::vector<std::string>& words) {
  std::vector<std::string> hosts;
  if (!host_of(c, words, hosts)) return exit_usage;
  auto a = c.link.ask(hosts, [](msg::NodeQuery::Builder q) { q.setTree(); });
  if (!a) return failed(c, a.error());
  if (c.json)
    print_json(c, [&](json_writer& w) {
      w.StartArray();
      each_report(*a, [&](msg::NodeReport::Reader r) { tree_json(w, r); });
      w.EndArray();
    });
  else
    each_report(*a, [&](msg::NodeReport::Reader r) { c.out(tree_text(r)); });
  return tell_silent(c, *a) ? exit_failure : exit_ok;
}

int directory(command_context& c, const std::vector<std::string>& words) {
  std::vector<std::string> hosts{c.host};
  if (!host_of(c, words, hosts)) return exit_usage;
  return show_table(
      c, hosts, [](msg::NodeQuery::Builder q) { q.setDirectory(); }, &add_directory);
}

int workers(command_context& c, const std::vector<std::string>& words) {
  std::vector<std::string> hosts{c.host};
  if (!host_of(c, words, hosts)) return exit_usage;
  return show_table(
      c, hosts, [](msg::NodeQuery::Builder q) { q.setWorkers(); }, &add_workers);
}

int health(command_context& c, const std::vector<std::string>& words) {
  std::vector<std::string> hosts;
  if (!host_of(c, words, hosts)) return exit_usage;
  return show_table(
      c, hosts, [](msg::NodeQuery::Builder q) { q.setHealth(); }, &add_health);
}

int requests(command_context& c, const std::vector<std::string>& words) {
  std::vector<std::string> hosts;
  if (!host_of(c, words, hosts)) return exit_usage;
  return show_table(
      c, hosts, [](msg::NodeQuery::Builder q) { q.setRequests(); }, &add_requests);
}

int request(command_context& c, const std::vector<std::string>& words) {
  if (words.size() != 1) return usage(c, "`request` needs one X-Request-Id");
  auto a = c.link.ask({}, [&](msg::NodeQuery::Builder q) { q.setTimeline(words[0]); });
  if (!a) return failed(c, a.error());
  std::string found;
  each_report(*a, [&](msg::NodeReport::Reader r) {
    if (r.getTimelineJson().size() > 0) found = r.getTimelineJson().cStr();
  });
  const bool silent = tell_silent(c, *a);
  if (!found.empty()) return c.out(found + "\n"), exit_ok;
  c.err(fmt::format("no host that answered knows a request '{}'", printable(words[0])));
  return silent ? exit_failure : exit_failure;
}

expected<std::vector<host_books>> look(command_context& c, const std::vector<std::string>& hosts,
                                       bool& silent) {
  auto a = c.link.ask(hosts, [](msg::NodeQuery::Builder q) { q.setBooks(); });
  if (!a) return std::move(a).error();
  silent = tell_silent(c, *a) || silent;
  std::vector<host_books> all;
  each_report(*a, [&](msg::NodeReport::Reader r) {
    all.push_back(troupe::console::read(r.getBooks(), r.getHost().cStr()));
  });
  return all;
}

int books(command_context& c, const std::vector<std::string>& words) {
  bool check = false, zero = false, silent = false;
  for (const auto& w : words) {
    if (w == "--check")
      check = true;
    else if (w == "--zero")
      check = zero = true;
    else
      return usage(c, fmt::format("`books` takes --check and --zero, not '{}'", printable(w)));
  }
  auto all = look(c, {}, silent);
  if (!all) return failed(c, all.error());
  std::vector<std::string> lines;
  if (check) {
    // What is on its way at the first look has arrived at the second.
    lines = troupe::console::check_books(*all);
    if (!lines.empty()) {
      c.pause(check_pause);
      all = look(c, {}, silent);
      if (!all) return failed(c, all.error());
      lines = troupe::console::lasting(lines, troupe::console::check_books(*all));
    }
  }
  if (zero && !troupe::console::sum(*all).zero())
    lines.push_back("something is still held: see the sums");
  if (c.json)
    print_json(c, [&](json_writer& w) {
      w.StartObject();
      books_json(w, *all);
      w.Key("mismatches");
      w.StartArray();
      for (const auto& line : lines) put(w, line);
      w.EndArray();
      w.EndObject();
    });
  else
    c.out(books_text(*all));
  for (const auto& line : lines)
    if (!c.json) c.out(printable(line) + "\n");
  if (check && !c.json && lines.empty() && !silent) c.out("the books balance\n");
  return silent || !lines.empty() ? exit_failure : exit_ok;
}

int help(command_context& c, const std::vector<std::string>&) {
  for (const auto& x : commands())
    c.out(fmt::format("{:<28}{}\n", fmt::format("{} {}", x.name, x.arguments), x.help));
  return exit_ok;
}

}  // namespace

const std::vector<command>& commands() {
  static const std::vector<command> all = {
      {"tree", "[HOST]", "supervision trees: state, generation, restarts, mailbox, engines", &tree},
      {"workers", "[HOST]", "what the workers of the cluster say of themselves", &workers},
      {"directory", "[HOST]", "the names of the cluster, as a host knows them", &directory},
      {"health", "[HOST]", "the watchdogs' verdicts on their engines, with the evidence", &health},
      {"requests", "[HOST]", "requests that run", &requests},
      {"request", "ID", "how the request with this X-Request-Id travelled", &request},
      {"books", "[--check] [--zero]",
       "who holds what; --check: what does not balance; --zero: nothing may be held", &books},
      {"help", "", "this list", &help},
  };
  return all;
}

int run_command(command_context& c, const std::vector<std::string>& words) {
  if (words.empty()) return exit_ok;
  for (const auto& x : commands())
    if (words[0] == x.name) return x.run(c, {words.begin() + 1, words.end()});
  return usage(c, fmt::format("there is no command '{}'", printable(words[0])));
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in{line};
  std::vector<std::string> words;
  for (std::string w; in >> w;) words.push_back(w);
  return words;
}

std::vector<std::string> completions(const std::string& line,
                                     const std::vector<std::string>& hosts) {
  auto words = words_of(line);
  const bool begins = line.empty() || line.back() == ' ' || line.back() == '\t';
  const std::string last = begins || words.empty() ? "" : words.back();
  const auto place = words.size() - (last.empty() ? 0 : 1);
  std::vector<std::string> all;
  if (place == 0)
    for (const auto& x : commands()) all.emplace_back(x.name);
  else if (words[0] == "books")
    all = {"--check", "--zero"};
  else if (place == 1 && words[0] != "help" && words[0] != "request")
    all = hosts;
  std::erase_if(all, [&](const std::string& x) { return !x.starts_with(last); });
  return all;
}

}  // namespace troupe::apps::console
