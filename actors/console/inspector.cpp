#include "actors/console/inspector.hpp"

#include "actors/console/reports.hpp"
#include "actors/control/control_actor.hpp"
#include "actors/health/watchdog_actor.hpp"
#include "actors/link/guarded.hpp"
#include "actors/router/router_actor.hpp"
#include "actors/supervision/supervisor.hpp"

#include <caf/all.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <list>
#include <set>
#include <utility>

namespace troupe::console {

namespace {

using audit_late_atom = caf::atom_constant<caf::atom("insaudit")>;

/// Who asked, and as which of its queries.
struct asked_by {
  msg::address who;
  std::uint64_t id = 0;
};

/// The books of a host on their way together.
struct gathering {
  asked_by by;
  std::uint64_t number = 0;
  host_books books;
  std::size_t open = 0;           ///< answers of actors here that are due
  std::set<std::string> engines;  ///< whose audits are due
  bool told = false;
};

/// What this host knows of the router shards, on its way together.
struct shards_look {
  asked_by by;
  host_shards all;
  std::size_t open = 1;  ///< answers that are due, and the asking itself
};

struct inspector_state {
  caf::event_based_actor* self;
  inspector_options options;
  std::list<std::shared_ptr<gathering>> gatherings;
  std::uint64_t next_gathering = 1;
  std::size_t open = 0;
  static constexpr const char* name = "inspector";

  explicit inspector_state(caf::event_based_actor* s) : self(s) {}
  ~inspector_state() {
    if (options.office) options.office->unbind(inspector_name(options.host), options.generation);
  }

  msg::address me() const { return {inspector_name(options.host), options.generation}; }

  /// Sends a report that `fill` writes.
  template <class Fill>
  void answer(const asked_by& by, Fill fill) {
    --open;
    send(by, fill);
  }
  template <class Fill>
  void send(const asked_by& by, Fill fill) {
    msg::draft<msg::NodeReport> d{16 * 1024};
    d->setId(by.id);
    d->setHost(options.host);
    fill(*d);
    if (auto e = std::move(d).freeze())
      options.office->send(by.who, me(), *std::move(e));
    else
      fail(by, {"report_too_large", "the report of " + options.host + " is larger than a message"});
  }
  void fail(const asked_by& by, const error& why) {
    msg::draft<msg::NodeReport> d;
    d->setId(by.id);
    d->setHost(options.host);
    auto f = d->initFailure();
    f.setCode(why.code);
    f.setMessage(why.message);
    if (auto e = std::move(d).freeze()) options.office->send(by.who, me(), *std::move(e));
  }

  void query(const link::origin& from, msg::NodeQuery::Reader in) {
    const asked_by by{from.from, in.getId()};
    if (open >= queries_max)
      return fail(by, {"busy", "the inspector of " + options.host + " has too many queries"});
    ++open;
    switch (in.which()) {
    case msg::NodeQuery::TREE:
      return walk_tree(self, options.roots(), [this, by](const std::vector<tree_node>& roots) {
        answer(by, [&](msg::NodeReport::Builder out) { write(out, roots); });
      });
    case msg::NodeQuery::DIRECTORY:
      return answer(by, [this](msg::NodeReport::Builder out) {
        const auto all = options.view->get();
        auto list = out.initDirectory(static_cast<unsigned>(all->size()));
        unsigned i = 0;
        for (const auto& [entry_name, e] : *all) directory::write(list[i++], e);
      });
    case msg::NodeQuery::WORKERS:
      return ask<std::string>(
          by, request::hub_name(options.host), request::describe_workers{},
          [](msg::NodeReport::Builder out, const std::string& json) { out.setWorkersJson(json); });
    case msg::NodeQuery::HEALTH:
      return ask<health::verdicts_report>(
          by, "watchdog/" + options.host, health::describe_verdicts{},
          [](msg::NodeReport::Builder out, const auto& r) { write(out, r); });
    case msg::NodeQuery::REQUESTS:
      return ask<request::requests_report>(
          by, request::hub_name(options.host), request::describe_requests{},
          [](msg::NodeReport::Builder out, const auto& r) { write(out, r); });
    case msg::NodeQuery::TIMELINE:
      return ask<std::string>(
          by, request::hub_name(options.host), request::describe_timeline{in.getTimeline().cStr()},
          [](msg::NodeReport::Builder out, const std::string& json) { out.setTimelineJson(json); });
    case msg::NodeQuery::BOOKS:
      return gather(by);
    case msg::NodeQuery::RELOAD:
      if (!options.reload) break;
      return answer(
          by, [r = options.reload(in.getReload().getApply(), in.getReload().getDigest().cStr())](
                  msg::NodeReport::Builder out) { write(out.initReloaded(), r); });
    case msg::NodeQuery::SHARDS:
      return look_at_shards(by);
    case msg::NodeQuery::NONE:
      break;
    }
    --open;
    fail(by, {"unknown_query", options.host + " does not know this query"});
  }

  /// Calls `then(actor)`, with null when the tree has no such child now.
  template <class Then>
  void find(const std::string& child, Then then) {
    const auto roots = options.roots();
    if (roots.empty() || !roots.back().actor) return then(caf::actor{});
    self->request(roots.back().actor, describe_timeout, supervision::describe_children{})
        .then(
            [child, then](const supervision::children_report& r) {
              const auto i = std::find_if(r.children.begin(), r.children.end(),
                                          [&](const auto& c) { return c.id == child; });
              then(i == r.children.end() ? caf::actor{} : i->actor);
            },
            [then](const caf::error&) { then(caf::actor{}); });
  }

  /// One actor is asked, and its answer written.
  template <class Answer, class Question, class Write>
  void ask(const asked_by& by, const std::string& whom, Question question, Write write_it) {
    find(whom, [=, this](const caf::actor& who) {
      const auto silent = [=, this](const std::string& why) {
        --open;
        fail(by, {"actor_silent", whom + " " + why});
      };
      if (!who) return silent("is not there now");
      self->request(who, describe_timeout, question)
          .then(
              [=, this](const Answer& a) {
                answer(by, [&](msg::NodeReport::Builder out) { write_it(out, a); });
              },
              [=](const caf::error&) { silent("does not answer"); });
    });
  }

  // -- router shards -----------------------------------------------------------------

  void look_at_shards(const asked_by& by) {
    auto look = std::make_shared<shards_look>();
    look->by = by;
    if (options.assigned) look->all.assigned = options.assigned();
    const auto all = options.view->get();
    for (const auto& [entry_name, e] : *all) {
      if (e.host != options.host) continue;
      if (e.role == msg::Role::ROUTER)
        part_of_look<control::shard_load>(
            look, entry_name, control::describe_load{},
            [](host_shards& all, const control::shard_load& l) { all.here.push_back(l); });
      if (e.role == msg::Role::CONTROL)
        part_of_look<control::control_report>(
            look, entry_name, control::describe_control{},
            [](host_shards& all, const control::control_report& r) { all.control = r; });
    }
    one_less(look);
  }

  template <class Answer, class Question, class Take>
  void part_of_look(const std::shared_ptr<shards_look>& look, const std::string& whom,
                    Question question, Take take) {
    ++look->open;
    find(whom, [=, this](const caf::actor& who) {
      const auto silent = [=, this] {
        look->all.silent.push_back(whom);
        one_less(look);
      };
      if (!who) return silent();
      self->request(who, describe_timeout, question)
          .then(
              [=, this](const Answer& a) {
                take(look->all, a);
                one_less(look);
              },
              [=](const caf::error&) { silent(); });
    });
  }

  void one_less(const std::shared_ptr<shards_look>& look) {
    if (--look->open == 0)
      answer(look->by, [&](msg::NodeReport::Builder out) { write(out.initShards(), look->all); });
  }

  // -- books -------------------------------------------------------------------------

  void gather(const asked_by& by) {
    auto g = std::make_shared<gathering>();
    g->by = by;
    g->number = next_gathering++;
    g->books.host = options.host;
    gatherings.push_back(g);
    part<request::requests_report>(g, request::hub_name(options.host), request::describe_requests{},
                                   [](host_books& b, const request::requests_report& r) {
                                     b.has_hub = true;
                                     b.hub.generation = r.generation;
                                     for (const auto& x : r.requests)
                                       b.hub.requests.push_back(x.id);
                                     b.hub.jobs = r.jobs;
                                     b.hub.leases = r.leases;
                                     b.hub.tickets = r.tickets;
                                     b.hub.prompt_bytes = r.held_bytes;
                                   });
    const auto all = options.view->get();
    for (const auto& [shard, e] : *all)
      if (e.role == msg::Role::ROUTER && e.host == options.host)
        part<router::leases_report>(g, shard, router::describe_leases{},
                                    [by = shard](host_books& b, const router::leases_report& r) {
                                      b.shards.push_back(by);
                                      for (const auto& l : r.leases)
                                        b.leases.push_back({l.id, l.host, l.incarnation, l.prefill,
                                                            l.decode, l.tokens, by});
                                    });
    for (const auto& [entry_name, e] : *all) {
      if (e.host != options.host || e.model.empty()) continue;
      if (request::may_work(e.state)) audit(g, e);
      // Its process is there, and may hold anything.
      if (e.state == msg::EntryState::UNKNOWN) g->books.silent.push_back(entry_name);
    }
    self->delayed_send(self, audit_timeout, audit_late_atom::value, g->number);
    finish_if_whole(g);
  }

  template <class Answer, class Question, class Take>
  void part(const std::shared_ptr<gathering>& g, const std::string& whom, Question question,
            Take take) {
    ++g->open;
    find(whom, [=, this](const caf::actor& who) {
      const auto silent = [=, this] {
        g->books.silent.push_back(whom);
        --g->open;
        finish_if_whole(g);
      };
      if (!who) return silent();
      self->request(who, describe_timeout, question)
          .then(
              [=, this](const Answer& a) {
                take(g->books, a);
                --g->open;
                finish_if_whole(g);
              },
              [=](const caf::error&) { silent(); });
    });
  }

  void audit(const std::shared_ptr<gathering>& g, const directory::entry& e) {
    g->engines.insert(e.name);
    msg::draft<msg::EngineCommand> d;
    d->setAudit();
    options.office->send({e.name, e.generation}, me(), std::move(d).freeze().value());
  }

  void audited(msg::Audit::Reader in) {
    const auto part = read(in);
    for (const auto& g : std::list(gatherings)) {
      if (g->engines.erase(part.worker) == 0) continue;
      g->books.engines.push_back(part);
      finish_if_whole(g);
    }
  }

  void audits_late(std::uint64_t number) {
    for (const auto& g : std::list(gatherings)) {
      if (g->number != number) continue;
      for (const auto& engine : std::exchange(g->engines, {})) g->books.silent.push_back(engine);
      finish_if_whole(g);
    }
  }

  void finish_if_whole(const std::shared_ptr<gathering>& g) {
    if (g->told || g->open > 0 || !g->engines.empty()) return;
    g->told = true;
    gatherings.remove(g);
    answer(g->by, [&](msg::NodeReport::Builder out) { write(out.initBooks(), g->books); });
  }
};

caf::behavior behavior(caf::stateful_actor<inspector_state>* self, inspector_options options) {
  auto& s = self->state;
  s.options = std::move(options);
  s.options.office->bind(s.me().name, s.me().generation, caf::actor_cast<caf::actor>(self));
  self->set_error_handler([](caf::scheduled_actor*, caf::error&) {});
  self->set_default_handler(caf::drop);
  return {
      link::on<msg::NodeQuery>(
          [&s](const link::origin& from, msg::NodeQuery::Reader in) { s.query(from, in); }),
      link::on<msg::Audit>([&s](msg::Audit::Reader in) { s.audited(in); }),
      [&s](audit_late_atom, std::uint64_t number) { s.audits_late(number); },
      supervision::answers_for_itself(self),
  };
}

}  // namespace

std::string inspector_name(const std::string& host) { return "inspector/" + host; }

caf::actor spawn_inspector(caf::actor_system& system, inspector_options options) {
  return system.spawn(behavior, std::move(options));
}

}  // namespace troupe::console
