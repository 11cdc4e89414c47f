// The checker over books that balance, and over books with one thing wrong.

#include "actors/console/books.hpp"

#include <catch2/catch.hpp>

#include <functional>

using namespace troupe::console;

namespace {

using lines = std::vector<std::string>;

const request_id id{0, 0xabc};
const job_key key{id, 0, 1};
const std::pair<std::string, std::uint64_t> prefill{"prefill/p/h0.0", 4},
    decode{"decode/d/h1.0", 7};

/// A hub with one request, whose prefill and decode jobs run at two hosts.
struct world {
  host_books h0, h1;

  world() {
    h0.host = "h0";
    h0.has_hub = true;
    h0.shards = {"router/0"};
    h0.hub.requests = {id};
    h0.hub.tickets = 1;
    h0.hub.prompt_bytes = 100;
    h0.hub.jobs = {{prefill, {key}}, {decode, {key}}};
    h0.hub.leases = {{"router/0", 5}};
    h0.leases = {{5, "h0", 1, prefill.first, decode.first, 30, "router/0"}};
    h0.engines = {engine(prefill)};
    h1.host = "h1";
    h1.has_hub = true;
    h1.engines = {engine(decode)};
  }
  static host_books::engine_part engine(const std::pair<std::string, std::uint64_t>& worker) {
    host_books::engine_part e;
    e.worker = worker.first;
    e.generation = worker.second;
    e.keys = {key};
    e.key_count = e.jobs = 1;
    e.referenced = 20;
    e.ledger_tokens = e.engine_cells = 25;
    e.buffers = e.buffers_free = 4;
    return e;
  }
  std::vector<host_books> all() const { return {h0, h1}; }
};

}  // namespace

TEST_CASE("books that balance have no line, with work and at rest") {
  world w;
  CHECK(check_books(w.all()) == lines{});
  CHECK_FALSE(sum(w.all()).zero());
  CHECK(sum(w.all()).jobs == 2);
  CHECK(sum(w.all()).worker_jobs == 2);
  CHECK(sum(w.all()).kv_tokens == 40);
  host_books rest;
  rest.host = "h0";
  rest.has_hub = true;
  rest.shards = {"router/0"};
  auto idle = world::engine(decode);
  idle.keys.clear();
  idle.key_count = idle.jobs = idle.referenced = 0;  // cached prefixes are nobody's
  rest.engines = {idle};
  CHECK(check_books({rest}) == lines{});
  CHECK(sum({rest}).zero());
  for (const auto& hold : std::vector<std::function<void(host_books::engine_part&)>>{
           [](auto& e) { e.early_opens = 1; }, [](auto& e) { e.buffers_free = 3; },
           [](auto& e) { e.assembling_bytes = 9; }}) {
    auto not_quite = rest;
    hold(not_quite.engines[0]);
    CHECK_FALSE(sum({not_quite}).zero());
  }
}

TEST_CASE("whatever is held by one side only is a line") {
  struct row {
    const char* what;
    std::function<void(world&)> change;
    std::vector<const char*> expected;
  };
  const std::vector<row> rows = {
      {"a lease that its hub has lost",
       [](world& w) { w.h0.hub.leases.clear(); },
       {"lease 0000000000000005: router/0 gave it to requests/h0, which doesn't hold it"}},
      {"a lease of a host that is gone",
       [](world& w) { w.h0.leases[0].host = "h9"; },
       {"lease 0000000000000005: requests/h0 holds it, and router/0 doesn't know it",
        "lease 0000000000000005: router/0 gave it to host h9, which did not answer"}},
      {"a lease that another shard has given",
       [](world& w) {
         w.h1.shards = {"router/1"};
         w.h1.leases = {{5, "h0", 1, "", decode.first, 30, "router/1"}};
       },
       {"lease 0000000000000005: router/1 gave it to requests/h0, which doesn't hold it"}},
      {"a lease of a shard that nobody has",
       [](world& w) {
         w.h0.shards = {"router/1"};
         w.h0.leases.clear();
       },
       {"lease 0000000000000005: requests/h0 holds it, and router/0, which granted it, is "
        "nowhere"}},
      {"the same, where an actor was silent that may have it",
       [](world& w) {
         w.h0.shards.clear();
         w.h0.leases.clear();
         w.h1.silent = {"router/0"};
       },
       {"router/0 did not answer"}},
      {"a lease that the router has forgotten",
       [](world& w) { w.h0.leases.clear(); },
       {"requests/h0 holds it, and router/0 doesn't know it"}},
      {"a job that no hub holds",
       [](world& w) { w.h0.hub.jobs.erase(decode); },
       {"/0/1 at decode/d/h1.0: no request holds it"}},
      {"a job of an earlier attempt",
       [](world& w) { w.h1.engines[0].keys[0].attempt = 2; },
       {"/0/1 at decode/d/h1.0: requests/h0 holds it, and the worker doesn't know it",
        "/0/2 at decode/d/h1.0: no request holds it"}},
      {"a job at a worker that was replaced",
       [](world& w) { w.h1.engines[0].generation = 8; },
       {"requests/h0 holds it, and that incarnation of the worker is not there",
        "at decode/d/h1.0: no request holds it"}},
      {"a job of a request that has ended",
       [](world& w) {
         w.h0.hub.requests.clear();
         w.h0.hub.tickets = 0;
         w.h0.hub.prompt_bytes = 0;
         w.h0.hub.jobs.erase(prefill);
         w.h0.engines.clear();
       },
       {"at decode/d/h1.0: requests/h0 holds it, and has no such request"}},
      {"places and bytes of nobody",
       [](world& w) {
         w.h1.hub.tickets = 2;
         w.h1.hub.prompt_bytes = 9;
       },
       {"requests/h1: 2 places are taken", "requests/h1: 9 prompt bytes are held"}},
      {"an engine's own mismatch",
       [](world& w) { w.h1.engines[0].mismatches = {"slot 3: x"}; },
       {"decode/d/h1.0: slot 3: x"}},
      {"cells that only the engine has",
       [](world& w) { w.h1.engines[0].engine_cells = 26; },
       {"decode/d/h1.0: the ledger has 25 KV tokens, the engine has 26"}},
      {"an engine that goes on alone",
       [](world& w) {
         w.h0.hub.jobs.erase(decode);
         w.h1.engines[0].keys.clear();
         w.h1.engines[0].key_count = 0;
         w.h1.engines[0].transfers = 1;
       },
       {"the engine has 1 jobs, the worker has none", "20 KV tokens are referenced",
        "1 hand-overs are open"}},
      {"what a worker's transport and its unfinished prompts hold without a job",
       [](world& w) {
         w.h0.hub.jobs.erase(decode);
         auto& e = w.h1.engines[0];
         e.keys.clear();
         e.key_count = e.jobs = e.referenced = 0;
         e.buffers_free = 1;
         e.assembling_bytes = 70;
       },
       {"decode/d/h1.0: 3 of 4 transfer buffers are in use",
        "decode/d/h1.0: 70 bytes of prompts are held"}},
      {"an actor that was silent",
       [](world& w) { w.h1.silent = {"requests/h1"}; },
       {"requests/h1 did not answer"}},
      {"lists that were cut",
       [](world& w) {
         w.h0.hub.left_out = 1;
         w.h1.engines[0].key_count = 2;
       },
       {"decode/d/h1.0: too many jobs", "requests/h0: too many holdings"}},
      {"leases that were cut",
       [](world& w) { w.h0.leases_left_out = 1; },
       {"shards of h0: too many leases"}},
  };
  for (const auto& r : rows) {
    INFO(r.what);
    world w;
    r.change(w);
    const auto found = check_books(w.all());
    for (const auto& line : found) UNSCOPED_INFO(line);
    CHECK(found.size() == r.expected.size());
    for (const auto* part : r.expected) {
      INFO(part);
      CHECK(std::any_of(found.begin(), found.end(), [&](const std::string& line) {
        return line.find(part) != std::string::npos;
      }));
    }
  }
}

TEST_CASE("where a host did not answer, a lease's shard may be there") {
  world w;
  w.h0.shards.clear();
  w.h0.leases.clear();
  CHECK(check_books(w.all(), true).size() == 1);
  CHECK(check_books(w.all(), false) == lines{});
}

TEST_CASE("what was on its way at the first look is no line at the second") {
  world first, second;
  first.h0.hub.leases.clear();
  CHECK(lasting(check_books(first.all()), check_books(second.all())) == lines{});
  second.h0.hub.leases.clear();
  CHECK(lasting(check_books(first.all()), check_books(second.all())).size() == 1);
  second.h0.leases[0].id = 6;  // another one
  CHECK(lasting(check_books(first.all()), check_books(second.all())) == lines{});
}
