#include "apps/console/commands.hpp"

#include "actors/console/reports.hpp"
#include "apps/console/views.hpp"
#include "config/values.hpp"
#include "messages/base/exit_codes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

namespace troupe::apps::console {

namespace {

using troupe::console::host_books;

constexpr std::chrono::milliseconds drain_within_max{24 * 3'600'000};

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

int shards(command_context& c, const std::vector<std::string>& words) {
  if (!words.empty()) return usage(c, "`shards` takes no words: all hosts are asked");
  auto a = c.link.ask({}, [](msg::NodeQuery::Builder q) { q.setShards(); });
  if (!a) return failed(c, a.error());
  auto names = c.link.ask({c.host}, [](msg::NodeQuery::Builder q) { q.setDirectory(); });
  if (!names) return failed(c, names.error());
  shards_view view;
  each_report(*a, [&](msg::NodeReport::Reader r) { view.add(r); });
  each_report(*names, [&](msg::NodeReport::Reader r) { view.add_directory(r); });
  view.finish();
  if (c.json)
    print_json(c, [&](json_writer& w) { view.json(w); });
  else
    c.out(view.text());
  for (const auto& p : view.problems())
    if (!c.json) c.out(printable(p) + "\n");
  return tell_silent(c, *a) || tell_silent(c, *names) ? exit_failure : exit_ok;
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
  tell_silent(c, *a);
  if (!found.empty()) return c.out(found + "\n"), exit_ok;
  c.err(fmt::format("no host that answered knows a request '{}'", printable(words[0])));
  return exit_failure;
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
    lines = troupe::console::check_books(*all, !silent);
    if (!lines.empty()) {
      c.pause(check_pause);
      all = look(c, {}, silent);
      if (!all) return failed(c, all.error());
      lines = troupe::console::lasting(lines, troupe::console::check_books(*all, !silent));
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

/// Prints how an order goes, a line for each change at an engine; what is wrong in the end.
int carry_out(command_context& c, const std::function<void(msg::ConsoleOrder::Builder)>& fill) {
  std::map<std::string, std::string> told;
  bool failed_any = false;
  auto a = c.link.order(fill, [&](msg::ConsoleReply::Reader in) {
    failed_any = false;
    for (auto e : in.getProgress()) {
      const bool bad = e.getFailure().size() > 0;
      failed_any = failed_any || bad;
      auto line = fmt::format("{}  {}", printable(e.getEngine().cStr()), e.getPhase().cStr());
      if (e.getJobsLeft() > 0) line += fmt::format("  {} jobs left", e.getJobsLeft());
      if (bad) line += fmt::format("  {}", printable(e.getFailure().cStr()));
      if (std::exchange(told[e.getEngine().cStr()], line) != line && !c.json) c.out(line + "\n");
    }
  });
  if (!a) return failed(c, a.error());
  if (c.json)
    print_json(c, [&](json_writer& w) {
      w.StartArray();
      for (const auto& [engine, line] : told) put(w, line);
      w.EndArray();
    });
  return failed_any ? exit_failure : exit_ok;
}

int order_drain(command_context& c, const char* command, const std::vector<std::string>& words,
                msg::DrainEnd then, std::uint32_t at_once) {
  const auto o = read_order(command, words, c.hosts, c.pools);
  if (!o) return usage(c, o.error().message);
  return carry_out(c, [&](msg::ConsoleOrder::Builder out) {
    out.setKind(o->target.kind);
    out.setTarget(o->target.name);
    out.setAtOnce(o->all_at_once ? 0 : at_once);
    auto d = out.initDrain();
    const auto within = static_cast<std::uint32_t>(o->within.count());
    d.setWithinMs(within);
    d.setMoveAfterMs(o->move_now ? 0 : within);
    d.setThen(o->stop ? msg::DrainEnd::STOP : then);
  });
}

int drain(command_context& c, const std::vector<std::string>& words) {
  return order_drain(c, "drain", words, msg::DrainEnd::KEEP, 0);
}

int restart(command_context& c, const std::vector<std::string>& words) {
  return order_drain(c, "restart", words, msg::DrainEnd::RESTART, 1);
}

int undrain(command_context& c, const std::vector<std::string>& words) {
  if (words.size() != 1) return usage(c, "`undrain` needs one engine, pool or host");
  const auto o = read_order("undrain", words, c.hosts, c.pools);
  if (!o) return usage(c, o.error().message);
  return carry_out(c, [&](msg::ConsoleOrder::Builder out) {
    out.setKind(o->target.kind);
    out.setTarget(o->target.name);
    out.setUndrain();
  });
}

int help(command_context& c, const std::vector<std::string>&) {
  for (const auto& x : commands())
    c.out(fmt::format("{} {}\n    {}\n", x.name, x.arguments, x.help));
  return exit_ok;
}

// -- reload -----------------------------------------------------------------------------

/// Whether any node that answered could not take its file over.
bool tell_problems(command_context& c, const answer& a) {
  bool any = false;
  each_report(a, [&](msg::NodeReport::Reader r) {
    for (auto p : r.getReloaded().getProblems()) {
      c.err(fmt::format("host {}: {}", printable(r.getHost().cStr()), printable(p.cStr())));
      any = true;
    }
  });
  return any;
}

void add_reloaded(table& t, msg::NodeReport::Reader report) {
  const auto r = report.getReloaded();
  t.columns = {"host", "generation", "digest", "applied"};
  t.rows.push_back({report.getHost().cStr(), std::to_string(r.getGeneration()),
                    r.getDigest().cStr(), r.getApplied() ? "yes" : "no"});
}

/// First all are asked whether they could, so that a mistake changes nothing anywhere. Each is told
/// which file it has to be: one that has another says so, or, if it was changed in between, keeps
/// what it has.
int reload(command_context& c, const std::vector<std::string>& words) {
  if (!words.empty()) return usage(c, "`reload` takes no words: all hosts reload");
  const auto digest = c.digest();
  if (digest.empty()) {
    c.err("the cluster file here has problems: see `troupe config check`");
    return exit_failure;
  }
  const auto question = [&](bool apply) {
    return [&digest, apply](msg::NodeQuery::Builder q) {
      auto r = q.initReload();
      r.setApply(apply);
      r.setDigest(digest);
    };
  };
  auto asked = c.link.ask({}, question(false));
  if (!asked) return failed(c, asked.error());
  if (tell_problems(c, *asked)) {
    c.err("nothing was changed");
    return exit_failure;
  }
  std::vector<std::string> able;
  each_report(*asked, [&](msg::NodeReport::Reader r) { able.emplace_back(r.getHost().cStr()); });
  bool skew = tell_silent(c, *asked);
  if (able.empty()) return exit_failure;
  auto done = c.link.ask(able, question(true));
  if (!done) return failed(c, done.error());
  skew = tell_silent(c, *done) || skew;
  skew = tell_problems(c, *done) || skew;
  table t;
  each_report(*done, [&](msg::NodeReport::Reader r) {
    add_reloaded(t, r);
    if (r.getReloaded().getDigest() == digest.c_str()) return;
    c.err(fmt::format("host {}: goes by another cluster file than the one here, whose digest is {}",
                      printable(r.getHost().cStr()), digest));
    skew = true;
  });
  if (c.json)
    print_json(c, [&](json_writer& w) { table_json(w, t); });
  else
    c.out(to_text(t));
  if (skew) c.err("skew: not all hosts go by the same cluster file now");
  return skew ? exit_failure : exit_ok;
}

}  // namespace

const std::vector<command>& commands() {
  static const std::vector<command> all = {
      {"tree", "[HOST]", "supervision trees: state, generation, restarts, mailbox, engines", &tree},
      {"workers", "[HOST]", "what the workers of the cluster say of themselves", &workers},
      {"directory", "[HOST]", "the names of the cluster, as a host knows them", &directory},
      {"health", "[HOST]", "the watchdogs' verdicts on their engines, with the evidence", &health},
      {"shards", "", "the router's shards: what each has and does, and who decides on it", &shards},
      {"requests", "[HOST]", "requests that run", &requests},
      {"request", "ID", "how the request with this X-Request-Id travelled", &request},
      {"books", "[--check] [--zero]",
       "who holds what; --check: what does not balance; --zero: nothing may be held", &books},
      {"drain", "TARGET [--within 60s] [--move-now] [--stop]",
       "takes an engine, pool or host out of service; what runs ends, or is moved", &drain},
      {"restart", "TARGET [--within 60s] [--move-now] [--all-at-once]",
       "drains and replaces engine processes, one after the other", &restart},
      {"undrain", "TARGET", "takes it back into service", &undrain},
      {"reload", "",
       "has all nodes take over tenants, keys and limits of their cluster files, once all could",
       &reload},
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

/// What contradicts the command, or says what it does anyway, is not passed over in silence.
expected<order_words> read_order(const std::string& command, const std::vector<std::string>& words,
                                 const std::vector<std::string>& hosts,
                                 const std::vector<std::string>& pools) {
  const bool drains = command == "drain", restarts = command == "restart";
  order_words o;
  std::string target;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto& w = words[i];
    if (w == "--stop" && restarts)
      return error{"usage",
                   "`restart` and --stop contradict each other: it brings the engines back; "
                   "`drain TARGET --stop` is what stops them"};
    if (w == "--move-now" && (drains || restarts)) {
      o.move_now = true;
    } else if (w == "--stop" && drains) {
      o.stop = true;
    } else if (w == "--all-at-once" && restarts) {
      o.all_at_once = true;
    } else if (w == "--within" && (drains || restarts)) {
      const auto t = i + 1 < words.size() ? config::parse_duration(words[++i]) : std::nullopt;
      if (!t || *t > drain_within_max)
        return error{"usage", "--within needs a duration of 24h at most, like 90s"};
      o.within = *t;
    } else if (w.starts_with("--") || !target.empty()) {
      return error{"usage", fmt::format("`{}` does not understand '{}'", command, printable(w))};
    } else {
      target = w;
    }
  }
  if (target.empty()) return error{"usage", "an engine, a pool or a host must be named"};
  auto t = target_of(target, hosts, pools);
  if (!t) return std::move(t).error();
  o.target = *std::move(t);
  return o;
}

expected<order_target> target_of(const std::string& word, const std::vector<std::string>& hosts,
                                 const std::vector<std::string>& pools) {
  using kind = msg::ConsoleOrder::TargetKind;
  const auto has = [](const std::vector<std::string>& all, const std::string& name) {
    return std::find(all.begin(), all.end(), name) != all.end();
  };
  const auto colon = word.find(':');
  const auto in_front = colon == std::string::npos ? "" : word.substr(0, colon);
  const auto name = word.substr(colon == std::string::npos ? 0 : colon + 1);
  if (in_front.empty() && word.find('/') != std::string::npos)
    return order_target{kind::ENGINE, word};
  const bool host = has(hosts, name) && (in_front.empty() || in_front == "host");
  const bool pool = has(pools, name) && (in_front.empty() || in_front == "pool");
  if (host && pool)
    return error{
        "ambiguous_target",
        fmt::format("'{}' is a host and a pool: say host:{} or pool:{}", name, name, name)};
  if (!host && !pool)
    return error{
        "no_such_target",
        fmt::format("the cluster file has no host and no pool '{}', and engines are called "
                    "like decode/llama/h2.0",
                    printable(word))};
  return order_target{host ? kind::HOST : kind::POOL, name};
}

std::vector<std::string> completions(const std::string& line, const std::vector<std::string>& hosts,
                                     const std::vector<std::string>& pools) {
  auto words = words_of(line);
  const bool begins = line.empty() || line.back() == ' ' || line.back() == '\t';
  const std::string last = begins || words.empty() ? "" : words.back();
  const auto place = words.size() - (last.empty() ? 0 : 1);
  std::vector<std::string> all;
  if (place == 0) {
    for (const auto& x : commands()) all.emplace_back(x.name);
  } else if (words[0] == "books") {
    all = {"--check", "--zero"};
  } else if (place == 1 && words[0] != "help" && words[0] != "request" && words[0] != "reload") {
    all = hosts;
    if (words[0].ends_with("drain") || words[0] == "restart")
      all.insert(all.end(), pools.begin(), pools.end());
  }
  std::erase_if(all, [&](const std::string& x) { return !x.starts_with(last); });
  return all;
}

}  // namespace troupe::apps::console
