#include "apps/sim/books.hpp"

#include "actors/router/router_actor.hpp"

#include <caf/all.hpp>

#include <chrono>
#include <utility>

namespace troupe::sim {

namespace {

void read_workers(world& w, run_record& into) {
  into.workers.clear();
  for (auto* e : w.living_engines()) {
    if (!e->serving() || e->hangs()) continue;
    worker_books b;
    b.engine = e->name();
    b.routes = e->workers_host()->routes();
    const auto audit = e->workers_host()->engine().audit();
    b.jobs = audit.jobs;
    b.referenced = audit.referenced;
    b.mismatches = audit.mismatches;
    if (e->hand_over() != nullptr) {
      const auto g = e->hand_over()->read_gauges();
      b.hand_overs = g.sending + g.receiving + g.early_opens;
      b.buffers = g.buffers;
      b.buffers_free = g.buffers_free;
    }
    into.workers.push_back(std::move(b));
  }
}

/// The record outlives all answers: they come within `read_books`, or from nobody.
void read_shards(world& w, run_record& into) {
  into.shards.clear();
  for (const auto& [host, n] : w.nodes()) {
    if (!n.up()) continue;
    for (const auto& shard : w.when().actors_named(n.process, "router"))
      w.system().spawn(
          [&into, at = host](caf::event_based_actor* self, const caf::actor& who) {
            self->request(who, caf::infinite, control::describe_load{})
                .then([&into, at](const control::shard_load& l) {
                  into.shards.push_back({at, l.leases, l.goes_by, l.requests, l.misrouted});
                });
          },
          shard);
  }
  w.run(std::chrono::milliseconds{0}, [] { return false; });
}

}  // namespace

std::vector<std::string> not_ready(world& w) {
  std::vector<std::string> all;
  for (const auto& [host, n] : w.nodes()) {
    if (!n.up()) {
      all.push_back("node " + host + " is down");
      continue;
    }
    const auto seen = n.tree->data().view()->get();
    for (const auto& h : w.cluster().hosts)
      for (const auto& e : config::engines_on(w.cluster(), h.name)) {
        const auto i = seen->find(e.name);
        if (i == seen->end())
          all.push_back(host + " does not know " + e.name);
        else if (i->second.state != msg::EntryState::READY &&
                 i->second.state != msg::EntryState::FAILED)
          all.push_back(host + " sees " + e.name + " in state " +
                        std::to_string(static_cast<int>(i->second.state)) + ": " +
                        i->second.detail);
        else if (auto* there = w.engine(e.name); there != nullptr && there->serving() &&
                                                 i->second.generation != there->generation())
          all.push_back(host + " knows an earlier incarnation of " + e.name);
      }
  }
  return all;
}

void read_books(world& w, run_record& into) {
  read_workers(w, into);
  into.nodes.clear();
  into.go_by.clear();
  for (const auto& [host, n] : w.nodes()) {
    if (!n.up()) continue;
    const auto hub = n.tree->data().current_hub();
    into.nodes.push_back({host, hub.gate->open(), hub.gate->held_bytes(), hub.jobs->size()});
    into.go_by.push_back({host, n.tree->data().shards()->get()->number()});
  }
  const auto kept = w.control_record();
  into.persisted = kept.last ? kept.last->number() : control::assignment_number{};
  read_shards(w, into);
}

}  // namespace troupe::sim
