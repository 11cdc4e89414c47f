#include "apps/console/views.hpp"

#include "messages/entry_state.hpp"

#include <capnp/schema.h>
#include <fmt/format.h>
#include <simdjson.h>

#include <kj/string.h>

#include <algorithm>
#include <cmath>

namespace troupe::apps::console {

namespace {

/// JSON has no other numbers.
double finite(double x) { return std::isfinite(x) ? x : 0; }

void tree_line(std::string& out, msg::TreeNode::Reader n, const std::string& indent, bool last,
               bool root) {
  out += indent;
  if (!root) out += last ? "└── " : "├── ";
  out += printable(n.getName().cStr());
  const std::string state = n.getState().cStr();
  if (state != "running") out += "  " + state;
  if (n.getGeneration() != 0) out += fmt::format("  generation {}", n.getGeneration());
  if (n.getRestarts() > 0) out += fmt::format("  restarts {}", n.getRestarts());
  if (n.getMailbox() >= 0) out += fmt::format("  mailbox {}", n.getMailbox());
  for (auto f : n.getFacts())
    out += fmt::format("  {}={}", printable(f.getKey().cStr()), printable(f.getValue().cStr()));
  if (n.getSilent().size() > 0) out += fmt::format("  ({})", n.getSilent().cStr());
  if (n.getLastEnd().size() > 0)
    out += fmt::format("  last end: {}", printable(n.getLastEnd().cStr()));
  out += '\n';
  const auto below = root ? indent : indent + (last ? "    " : "│   ");
  const auto children = n.getChildren();
  for (unsigned i = 0; i < children.size(); ++i)
    tree_line(out, children[i], below, i + 1 == children.size(), false);
}

void text_field(json_writer& w, const char* key, const std::string& value) {
  w.Key(key);
  put(w, value);
}

void tree_node_json(json_writer& w, msg::TreeNode::Reader n) {
  w.StartObject();
  text_field(w, "name", n.getName().cStr());
  text_field(w, "state", n.getState().cStr());
  w.Key("generation"), w.Uint64(n.getGeneration());
  w.Key("restarts"), w.Uint(n.getRestarts());
  text_field(w, "last_end", n.getLastEnd().cStr());
  w.Key("mailbox");
  if (n.getMailbox() >= 0)
    w.Int64(n.getMailbox());
  else
    w.Null();
  text_field(w, "silent", n.getSilent().cStr());
  w.Key("facts");
  w.StartObject();
  for (auto f : n.getFacts()) text_field(w, f.getKey().cStr(), f.getValue().cStr());
  w.EndObject();
  w.Key("children");
  w.StartArray();
  for (auto child : n.getChildren()) tree_node_json(w, child);
  w.EndArray();
  w.EndObject();
}

std::int64_t number(std::uint64_t n) { return static_cast<std::int64_t>(n); }

std::string role_name(msg::Role role) {
  const auto schema = capnp::Schema::from<msg::Role>();
  for (auto e : schema.getEnumerants())
    if (e.getOrdinal() == static_cast<std::uint16_t>(role)) return e.getProto().getName().cStr();
  return "unknown";
}

using figures = std::vector<std::pair<const char*, std::uint64_t>>;
figures figures_of(const troupe::console::held_in_all& s) {
  return {{"requests", s.requests},
          {"prompt_bytes", s.prompt_bytes},
          {"leases", s.leases},
          {"router_leases", s.router_leases},
          {"jobs", s.jobs},
          {"worker_jobs", s.worker_jobs},
          {"engine_jobs", s.engine_jobs},
          {"transfers", s.transfers},
          {"early_opens", s.early_opens},
          {"buffers", s.buffers},
          {"assembling_bytes", s.assembling_bytes},
          {"kv_tokens", s.kv_tokens}};
}

}  // namespace

std::string tree_text(msg::NodeReport::Reader report) {
  std::string out = fmt::format("host {}\n", printable(report.getHost().cStr()));
  for (auto n : report.getTree()) tree_line(out, n, "", true, true);
  return out;
}

void tree_json(json_writer& w, msg::NodeReport::Reader report) {
  w.StartObject();
  text_field(w, "host", report.getHost().cStr());
  w.Key("tree");
  w.StartArray();
  for (auto n : report.getTree()) tree_node_json(w, n);
  w.EndArray();
  w.EndObject();
}

void add_directory(table& t, msg::NodeReport::Reader report) {
  t.columns = {"name", "host", "role", "state", "generation", "model", "detail"};
  for (auto e : report.getDirectory())
    t.rows.push_back({e.getName().cStr(), e.getHost().cStr(), role_name(e.getRole()),
                      msg::state_name(e.getState()), number(e.getGeneration()), e.getModel().cStr(),
                      e.getSlow().size() > 0 ? std::string{"slow: "} + e.getSlow().cStr()
                                             : e.getDetail().cStr()});
}

void add_health(table& t, msg::NodeReport::Reader report) {
  t.columns = {"host",  "engine", "verdict",         "jobs",   "steps",   "tokens",
               "ticks", "probes", "probes_answered", "age_ms", "evidence"};
  for (auto e : report.getHealth())
    t.rows.push_back({report.getHost().cStr(), e.getEngine().cStr(), e.getVerdict().cStr(),
                      number(e.getJobs()), number(e.getSteps()), number(e.getTokens()),
                      number(e.getTicks()), number(e.getProbesSent()),
                      number(e.getProbesAnswered()), number(e.getSinceMs()),
                      e.getEvidence().cStr()});
}

void add_requests(table& t, msg::NodeReport::Reader report) {
  t.columns = {"host", "request", "model", "age_ms", "prompt_bytes"};
  for (auto r : report.getRequests())
    t.rows.push_back({report.getHost().cStr(), r.getExternalId().cStr(), r.getModel().cStr(),
                      number(r.getAgeMs()), number(r.getPromptBytes())});
}

void add_workers(table& t, msg::NodeReport::Reader report) {
  struct column {
    const char* title;
    const char* member;
  };
  static constexpr column columns[] = {{"name", "name"},
                                       {"model", "model"},
                                       {"ready", "ready"},
                                       {"idle", "idle"},
                                       {"running", "running"},
                                       {"queued", "queued"},
                                       {"kv_used", "kv_used_tokens"},
                                       {"kv_cached", "kv_cached_tokens"},
                                       {"kv_total", "kv_total_tokens"},
                                       {"prefill/s", "prefill_tokens_per_second"},
                                       {"decode/s", "decode_tokens_per_second"},
                                       {"detail", "detail"}};
  t.columns.clear();
  for (const auto& c : columns) t.columns.emplace_back(c.title);
  simdjson::dom::parser parser;
  simdjson::dom::array workers;
  const std::string_view json{report.getWorkersJson().cStr(), report.getWorkersJson().size()};
  if (parser.parse(json).at_key("workers").get(workers) != simdjson::SUCCESS) return;
  for (auto worker : workers) {
    auto& row = t.rows.emplace_back();
    for (const auto& c : columns) {
      const auto value = worker.at_key(c.member);
      std::string_view text;
      bool yes = false;
      double figure = 0;
      if (value.get(text) == simdjson::SUCCESS)
        row.emplace_back(std::string{text});
      else if (value.get(yes) == simdjson::SUCCESS)
        row.emplace_back(std::string{yes ? "yes" : "no"});
      else if (value.get(figure) == simdjson::SUCCESS)
        row.emplace_back(static_cast<std::int64_t>(figure));
      else
        row.emplace_back(std::string{});
    }
  }
}

void shards_view::add(msg::NodeReport::Reader report) {
  const std::string host = report.getHost().cStr();
  const auto in = report.getShards();
  for (auto l : in.getHere()) {
    auto& s = shards_[l.getShard().cStr()];
    s.told = true;
    s.host = host;
    s.requests_per_second = l.getRequestsPerSecond();
    for (auto r : l.getRanges()) s.load += r.getLoad();
    s.requests = l.getRequests();
    s.misrouted = l.getMisrouted();
    s.blocks = l.getBlocks();
    s.leases = l.getLeases();
  }
  for (auto s : in.getSilent())
    problems_.push_back(fmt::format("host {}: {} does not answer", host, s.cStr()));
  if (in.getAssigned().size() > 0) {
    const assignment_number by{in.getTerm(), in.getGeneration()};
    if (go_by_.empty() || by >= shown_) {
      for (auto& [name, s] : shards_) s.slices = 0, s.part = 0;
      for (auto a : in.getAssigned()) {
        auto& s = shards_[a.getShard().cStr()];
        s.slices = a.getSlices();
        s.part = a.getPart();
      }
      shown_ = by;
    }
    go_by_[host] = by;
  }
  const auto c = in.getControl();
  if (!c.getPresent()) return;
  if (control_)
    problems_.push_back(fmt::format("control on {} and on {}: only one host may decide; stop the "
                                    "other",
                                    std::min(control_->host, host),
                                    std::max(control_->host, host)));
  if (c.getProblem().size() > 0)
    problems_.push_back(fmt::format("control on {}: {}", host, c.getProblem().cStr()));
  // Shown is the one whose word holds.
  if (control_ && assignment_number{c.getTerm(), c.getGeneration()} <
                      assignment_number{control_->term, control_->generation})
    return;
  control_ = decider{host,         c.getTerm(), c.getGeneration(), c.getMadeMs(), c.getImbalance(),
                     c.getChurn(), {}};
  for (auto s : c.getLost()) control_->lost.emplace_back(s.cStr());
}

void shards_view::add_directory(msg::NodeReport::Reader report) {
  for (auto e : report.getDirectory()) {
    if (e.getRole() != msg::Role::ROUTER) continue;
    auto& s = shards_[e.getName().cStr()];
    s.host = e.getHost().cStr();
    s.state = msg::state_name(e.getState());
    s.generation = e.getGeneration();
  }
}

void shards_view::finish() {
  // An assignment takes a moment to everybody: hosts are named, and the eye judges.
  for (const auto& [host, by] : go_by_)
    if (by != shown_)
      problems_.push_back(fmt::format("host {}: goes by assignment {}.{}, others by {}.{}", host,
                                      by.first, by.second, shown_.first, shown_.second));
  std::sort(problems_.begin(), problems_.end());
}

table shards_view::rows() const {
  table t;
  t.columns = {"shard",          "host", "state",     "generation", "slices", "part",
               "requests_per_s", "load", "misrouted", "blocks",     "leases"};
  // As in the cluster file: router/10 comes after router/9.
  std::vector<const std::pair<const std::string, shard>*> order;
  for (const auto& s : shards_) order.push_back(&s);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair{a->first.size(), a->first} < std::pair{b->first.size(), b->first};
  });
  for (const auto* s : order) {
    const auto& x = s->second;
    const auto if_told = [&](cell value) { return x.told ? std::move(value) : cell{""}; };
    t.rows.push_back({s->first, x.host, x.state.empty() ? "lost" : x.state, number(x.generation),
                      number(x.slices), fmt::format("{:.1f}%", 100 * x.part),
                      if_told(fmt::format("{:.2f}", x.requests_per_second)),
                      if_told(fmt::format("{:.3f}", x.load)), if_told(number(x.misrouted)),
                      if_told(number(x.blocks)), if_told(number(x.leases))});
  }
  return t;
}

std::string shards_view::text() const {
  auto out = to_text(rows());
  if (!control_) {
    out += fmt::format("assignment {}.{}; no control host tells of it\n", shown_.first,
                       shown_.second);
    return out;
  }
  out += fmt::format("assignment {}.{}; control on {} made {}.{}", shown_.first, shown_.second,
                     printable(control_->host), control_->term, control_->generation);
  if (control_->made_ms >= 0) out += fmt::format(" {:.0f} s ago", control_->made_ms / 1e3);
  if (control_->imbalance > 0) out += fmt::format(", imbalance {:.2f}", control_->imbalance);
  out += fmt::format(", moved {:.1f}%\n", 100 * control_->churn);
  for (const auto& s : control_->lost) out += fmt::format("counted out: {}\n", printable(s));
  return out;
}

void shards_view::json(json_writer& w) const {
  w.StartObject();
  text_field(w, "assignment", fmt::format("{}.{}", shown_.first, shown_.second));
  w.Key("shards");
  table_json(w, rows());
  w.Key("go_by");
  w.StartObject();
  for (const auto& [host, by] : go_by_)
    text_field(w, host.c_str(), fmt::format("{}.{}", by.first, by.second));
  w.EndObject();
  w.Key("control");
  if (control_) {
    w.StartObject();
    text_field(w, "host", control_->host);
    text_field(w, "made", fmt::format("{}.{}", control_->term, control_->generation));
    w.Key("made_ms"), w.Int64(control_->made_ms);
    w.Key("imbalance"), w.Double(finite(control_->imbalance));
    w.Key("churn"), w.Double(finite(control_->churn));
    w.Key("lost");
    w.StartArray();
    for (const auto& s : control_->lost) put(w, s);
    w.EndArray();
    w.EndObject();
  } else {
    w.Null();
  }
  w.Key("problems");
  w.StartArray();
  for (const auto& p : problems_) put(w, p);
  w.EndArray();
  w.EndObject();
}

std::string books_text(const std::vector<troupe::console::host_books>& all) {
  table t;
  t.columns = {"holder",    "requests",    "prompt_bytes", "leases",   "jobs",
               "transfers", "early_opens", "buffers",      "kv_tokens"};
  const std::string none;
  for (const auto& h : all) {
    if (h.has_hub) {
      std::size_t jobs = 0;
      for (const auto& [worker, keys] : h.hub.jobs) jobs += keys.size();
      t.rows.push_back({"requests/" + h.host,
                        number(std::max<std::uint64_t>(h.hub.requests.size(), h.hub.tickets)),
                        number(h.hub.prompt_bytes), number(h.hub.leases.size()), number(jobs), none,
                        none, none, none});
    }
    if (!h.shards.empty())
      t.rows.push_back({"router", none, none, number(h.leases.size() + h.leases_left_out), none,
                        none, none, none, none});
    for (const auto& e : h.engines)
      t.rows.push_back({e.worker, none, number(e.assembling_bytes), none, number(e.key_count),
                        number(e.transfers), number(e.early_opens),
                        number(e.buffers - std::min(e.buffers, e.buffers_free)),
                        number(e.referenced)});
  }
  return to_text(t);
}

void books_json(json_writer& w, const std::vector<troupe::console::host_books>& all) {
  w.Key("totals");
  w.StartObject();
  for (const auto& [key, value] : figures_of(troupe::console::sum(all)))
    w.Key(key), w.Uint64(value);
  w.EndObject();
  w.Key("hosts");
  w.StartArray();
  for (const auto& h : all) {
    w.StartObject();
    text_field(w, "host", h.host);
    w.Key("held");
    w.StartObject();
    for (const auto& [key, value] : figures_of(troupe::console::sum({h})))
      w.Key(key), w.Uint64(value);
    w.EndObject();
    w.Key("silent");
    w.StartArray();
    for (const auto& s : h.silent) put(w, s);
    w.EndArray();
    w.EndObject();
  }
  w.EndArray();
}

void table_json(json_writer& w, const table& t) {
  w.StartArray();
  for (const auto& row : t.rows) {
    w.StartObject();
    for (std::size_t i = 0; i < row.size(); ++i) {
      w.Key(t.columns[i].c_str());
      if (const auto* n = std::get_if<std::int64_t>(&row[i]))
        w.Int64(*n);
      else
        put(w, std::get<std::string>(row[i]));
    }
    w.EndObject();
  }
  w.EndArray();
}

}  // namespace troupe::apps::console
