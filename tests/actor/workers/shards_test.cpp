// Workers that tell several router shards of themselves.

#include "tests/actor/workers/fleet.hpp"

#include <algorithm>
#include <set>

using namespace troupe;
using namespace troupe::test;

namespace {

/// A shard that a test plays, and what it knows of one worker's blocks by the rules of the wire.
struct played_shard {
  std::string name;
  caf::actor actor;
  std::uint64_t next = 0;
  std::size_t gaps = 0;
  std::size_t resets = 0;
  bool whole = true;  ///< nothing of everything is still to come
  std::set<std::uint64_t> blocks{};
};

struct several : fleet {
  played_shard second{.name = "router/1", .actor = capture()};
  played_shard third{.name = "router/2", .actor = capture()};

  several() {
    shards = {"router/0", "router/1", "router/2"};
    office->bind(second.name, 0, second.actor);
    office->bind(third.name, 0, third.actor);
  }
  void hear(played_shard& s) {
    for (auto& [from, e] : take_envelopes<msg::PrefixEvents>(s.actor)) {
      msg::view<msg::PrefixEvents> in{e};
      if (in->getReset()) {
        ++s.resets;
        s.blocks.clear();
      } else if (in->getSequence() != s.next) {
        ++s.gaps;
      }
      s.next = in->getSequence() + 1;
      s.whole = !in->getMore();
      for (auto h : in->getDropped()) s.blocks.erase(h);
      for (auto h : in->getAdded()) s.blocks.insert(h);
    }
  }
  void ask_for_all(const machine& m, const std::string& from) {
    msg::draft<msg::PrefixResync> d;
    d->setWorker(m.name);
    d->setGeneration(m.generation);
    office->send({m.name, m.generation}, {from, 0}, std::move(d).freeze().value());
    run();
  }
  static fleet::wish prompt_of(char letter) {
    return {.prompt = std::string(1'200, letter), .max_tokens = 2};
  }
  std::uint64_t blocks_of(const caf::actor& shard) {
    caf::scoped_actor me{system};
    me->send(shard, control::describe_load{});
    run();
    std::uint64_t n = 0;
    me->receive([&](const control::shard_load& l) { n = l.blocks; });
    return n;
  }
};

}  // namespace

TEST_CASE_METHOD(several, "each shard hears of all blocks, in numbers of its own without a gap") {
  add("both/p/a.0", 1, msg::Role::BOTH);
  for (char c : {'a', 'b', 'c'}) answered(prompt_of(c));
  hear(second);
  hear(third);
  CHECK(second.blocks.size() >= 2);
  CHECK(second.blocks == third.blocks);
  CHECK(second.blocks.size() == blocks_of(router));
  CHECK(second.gaps + third.gaps == 0);
}

TEST_CASE_METHOD(several, "what one shard asks for again is a gap to nobody else") {
  auto& m = add("both/p/a.0", 1, msg::Role::BOTH);
  answered(prompt_of('a'));
  hear(second);
  hear(third);
  const auto before = second.blocks;
  ask_for_all(m, "router/1");
  answered(prompt_of('b'));
  hear(second);
  hear(third);
  CHECK(second.resets == 1);
  CHECK(second.whole);
  CHECK(third.resets == 0);
  CHECK(second.gaps + third.gaps == 0);
  CHECK(second.blocks == third.blocks);
  CHECK(std::includes(second.blocks.begin(), second.blocks.end(), before.begin(), before.end()));
  // Who is called as no shard of any cluster is told nothing.
  for (const auto* name : {"router/64", "router/09", "router/", "router/x", "control", "x/3"}) {
    const auto stranger = capture();
    office->bind(name, 0, stranger);
    ask_for_all(m, name);
    CHECK(pending(stranger) == 0);
  }
}

TEST_CASE_METHOD(several,
                 "a shard that the cluster is given later asks, and hears all from then on") {
  auto& m = add("both/p/a.0", 1, msg::Role::BOTH);
  answered(prompt_of('a'));
  played_shard added{.name = "router/9", .actor = capture()};
  office->bind(added.name, 0, added.actor);
  advance(1s);
  CHECK(pending(added.actor) == 0);
  ask_for_all(m, added.name);
  answered(prompt_of('b'));
  advance(1s);
  CHECK(take_envelopes<msg::WorkerReport>(added.actor).size() >= 1);
  hear(second);
  hear(added);
  CHECK(added.resets == 1);
  CHECK(added.gaps == 0);
  CHECK(added.blocks == second.blocks);
  ask_for_all(m, added.name);
  hear(added);
  CHECK(added.resets == 2);
}

TEST_CASE_METHOD(several, "each shard has the worker's reports") {
  add("both/p/a.0", 1, msg::Role::BOTH);
  take_envelopes<msg::WorkerReport>(second.actor);
  take_envelopes<msg::WorkerReport>(third.actor);
  advance(1s);
  CHECK(take_envelopes<msg::WorkerReport>(second.actor).size() == 1);
  CHECK(take_envelopes<msg::WorkerReport>(third.actor).size() == 1);
}

TEST_CASE_METHOD(several, "a shard that begins while blocks come and go knows all of them") {
  add("both/p/a.0", 1, msg::Role::BOTH);
  answered(prompt_of('a'));
  CHECK(blocks_of(router) > 0);
  // Its next incarnation begins in the middle of a request that brings more.
  const auto going_on = ask(prompt_of('b'));
  turns(2);
  caf::anon_send_exit(router, caf::exit_reason::kill);
  run();
  hear(second);
  router::router_options r;
  r.host = "a";
  r.generation = 2;
  r.models = {"m"};
  r.office = office;
  r.directory = directory;
  router = own(router::spawn_router(system, std::move(r)));
  finish({going_on.a});
  CHECK(going_on.a->end);
  settle();
  hear(second);
  CHECK(blocks_of(router) == second.blocks.size());
  CHECK(second.blocks.size() >= 4);
  CHECK(view->get()->at("router/0").generation == 2);
  CHECK(view->get()->at("router/0").state == msg::EntryState::READY);
}
