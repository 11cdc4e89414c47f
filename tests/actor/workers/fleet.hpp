#pragma once

// A whole data plane in one process: hub, router, directory, and workers with simulated engines
// that hand KV over through memory. Nothing runs by itself: messages, engine steps and transfers
// happen where the test says so, in the same order each time.

#include "actors/directory/directory_actor.hpp"
#include "actors/request/hub.hpp"
#include "actors/router/router_actor.hpp"
#include "actors/workers/worker_actor.hpp"
#include "gpu/engine/make_engine.hpp"
#include "gpu/engine/simulated/simulated_runner.hpp"
#include "gpu/text/byte_text_model.hpp"
#include "gpu/transfer/host_memory/host_fabric.hpp"
#include "tests/support/deterministic_system.hpp"

#include <capnp/message.h>
#include <capnp/serialize.h>
#include <catch2/catch.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::test {

using namespace std::chrono_literals;

/// The client: what it was given.
struct answer : request::client_sink {
  std::map<std::pair<int, int>, std::string> text;  ///< by prompt and choice
  std::map<std::pair<int, int>, std::vector<int>> ids;
  int accepted = 0;
  bool too_early = false;  ///< a delta before the acceptance
  std::optional<request::totals> end;
  std::optional<request::failure> failure;

  void on_accepted(std::uint16_t, std::uint32_t, std::uint32_t, const std::string&) override {
    ++accepted;
  }
  void on_delta(std::uint16_t prompt, msg::StreamDelta::Reader d) override {
    too_early = too_early || accepted == 0;
    text[{prompt, d.getChoice()}] += d.getText().cStr();
    for (auto id : d.getIds()) ids[{prompt, d.getChoice()}].push_back(id);
  }
  void on_finished(const request::totals& sum) override { end = sum; }
  void on_failed(const request::failure& why) override { failure = why; }
  bool over() const { return end || failure; }
};

struct engine_terms {
  std::uint32_t kv_tokens = 4'096;
  std::uint32_t slots = 16;
  std::uint32_t context = 2'048;
  std::uint32_t step_tokens = 64;
  bool prefix_reuse = true;
};

/// A worker and all that is under it.
struct machine {
  std::string name;
  std::uint64_t generation = 0;
  msg::Role role = msg::Role::BOTH;
  std::shared_ptr<transfer::hand_over_service> hand_over;
  std::shared_ptr<workers::engine_host> host;
  std::shared_ptr<crash::plain_board> board = std::make_shared<crash::plain_board>();
  std::function<void()> in_pass;  ///< called in the middle of each forward pass
  bool garbage = false;           ///< its passes give no numbers
  caf::actor actor;
  bool alive = true;
  bool stopped = false;
};

struct fleet : deterministic_system {
  std::shared_ptr<link::post_office> office = std::make_shared<link::post_office>();
  std::shared_ptr<directory::directory_view> view = std::make_shared<directory::directory_view>();
  std::unique_ptr<transfer::host_fabric> fabric = std::make_unique<transfer::host_fabric>();
  std::vector<std::unique_ptr<machine>> machines;
  std::vector<std::function<void()>> offloaded;
  std::function<void()> on_offload;  ///< called by whoever has something for a tokeniser's thread
  health::preparing_account preparing;  ///< what is said of the tokenisers
  caf::actor directory;
  caf::actor launcher;
  caf::actor router;
  request::hub hub;
  std::uint64_t next_id = 1;
  bool names_only = false;                         ///< ends are told without the address
  std::vector<std::string> shards = {"router/0"};  ///< that workers tell of themselves

  // Sessions of hand-overs take the machine's own clock; ours goes on from there.
  fleet()
      : deterministic_system(std::chrono::duration_cast<std::chrono::milliseconds>(
            std::chrono::steady_clock::now().time_since_epoch())) {
    directory = own(
        directory::spawn_directory(system, "a", link::random_process_id(), office, view));
    launcher = capture();
    office->bind("launcher/test", 0, launcher);
    router::router_options r;
    r.host = "a";
    r.models = {"m"};
    r.office = office;
    r.directory = directory;
    router = own(router::spawn_router(system, std::move(r)));
    request::hub_options h;
    h.host = "a";
    h.models = {"m"};
    h.office = office;
    h.view = view;
    h.directory = directory;
    hub = request::make_hub(system, std::move(h));
    own(hub.actor);
    run();
  }
  ~fleet() {
    for (auto& m : machines)
      if (m->alive) caf::anon_send_exit(m->actor, caf::exit_reason::kill);
    run();
    for (auto& m : machines) m->hand_over.reset();
  }

  machine& add(const std::string& name, std::uint64_t generation, msg::Role role,
               const engine_terms& terms = {}) {
    auto m = std::make_unique<machine>();
    m->name = name;
    m->generation = generation;
    m->role = role;
    auto text = text::make_byte_text_model(terms.context);
    engine::simulated_options o;
    o.model = "m";
    o.context_tokens = terms.context;
    o.slots = 64;
    o.cells = terms.kv_tokens;
    o.decode_step_us = 1;
    o.prefill_tokens_per_second = 1e9;
    o.sleep = [p = m.get()](auto) {
      if (p->in_pass) p->in_pass();
    };
    o.choose_fault = [p = m.get()] {
      return p->garbage ? engine::simulated_fault::garbage : engine::simulated_fault::none;
    };
    engine::batching_limits limits;
    limits.slots = terms.slots;
    limits.kv_tokens = terms.kv_tokens;
    limits.step_tokens = terms.step_tokens;
    limits.prefix_reuse = terms.prefix_reuse;
    engine::engine_options options;
    options.piece_bytes_max = piece_bytes;
    options.now = [this] { return now(); };
    auto engine = engine::make_batching_engine(std::make_unique<engine::simulated_runner>(o), text,
                                               limits, options);
    directory::entry e;
    if (role != msg::Role::BOTH) {
      transfer::hand_over_service::options t;
      t.layout = engine->info().kv_layout;
      t.piece_bytes = piece_bytes;
      t.buffers = 4;
      auto started = transfer::hand_over_service::start(
          t, [&](transfer::events& sink) -> expected<std::unique_ptr<transfer::backend>> {
            return fabric->join(sink);
          });
      REQUIRE(started);
      m->hand_over = *std::move(started);
      const auto address = m->hand_over->local_address();
      e.transfer_address.assign(
          reinterpret_cast<const std::uint8_t*>(address.data()),
          reinterpret_cast<const std::uint8_t*>(address.data() + address.size()));
      e.transfer_kind = "host";
    }
    e.name = name;
    e.generation = generation;
    e.role = role;
    e.model = "m";
    e.host = "a";
    e.state = msg::EntryState::READY;
    e.kv_tokens = terms.kv_tokens;
    e.context_tokens = terms.context;
    workers::engine_host::options h;
    h.worker = name;
    h.generation = generation;
    h.office = office;
    h.hand_over = m->hand_over;
    h.own_thread = false;
    h.board = m->board;
    m->host = std::make_shared<workers::engine_host>(std::move(engine), std::move(h));
    workers::worker_options w;
    w.self = e;
    w.launcher = "launcher/test";
    w.shards = shards;
    w.office = office;
    w.host = m->host;
    w.text = std::move(text);
    w.hand_over = m->hand_over;
    w.offload = [this](std::function<void()> task) {
      if (on_offload) on_offload();
      offloaded.push_back(std::move(task));
      return true;
    };
    w.preparing = [this] { return preparing; };
    w.on_stopped = [p = m.get()] { p->stopped = true; };
    m->actor = workers::spawn_worker(system, std::move(w));
    machines.push_back(std::move(m));
    caf::anon_send(directory, directory::set_entry{e});
    run();
    return *machines.back();
  }

  /// Its process ends, as SIGKILL would: nothing more comes from it, and its node says so.
  /// `silently`: as over shared memory, where no transport notices and only its launcher tells the
  /// other workers of the host.
  void kill(machine& m, bool silently = false) {
    m.alive = false;
    if (m.hand_over) fabric->kill(m.hand_over->local_address(), silently);
    caf::anon_send_exit(m.actor, caf::exit_reason::kill);
    run();
    if (silently) tell_of_end(m);
    auto e = view->get()->at(m.name);
    e.state = msg::EntryState::STARTING;
    e.detail = "killed by signal 9";
    caf::anon_send(directory, directory::set_entry{e});
    run();
  }

  void tell_of_end(const machine& dead) {
    for (auto& m : machines) {
      if (!m->alive) continue;
      const auto address = dead.hand_over->local_address();
      msg::draft<msg::EngineCommand> d;
      auto peer = d->initPeerEnded();
      peer.setEngine(dead.name);
      peer.setGeneration(dead.generation);
      if (!names_only)
        peer.setTransferAddress(
            kj::arrayPtr(reinterpret_cast<const kj::byte*>(address.data()), address.size()));
      office->send({m->name, 0}, {"launcher/test", 0}, std::move(d).freeze().value());
    }
    run();
  }

  /// One small thing of each kind. False: there was nothing to do anywhere.
  bool turn() {
    bool worked = scheduler.has_job();
    run();
    auto tasks = std::exchange(offloaded, {});
    worked = worked || !tasks.empty();
    for (auto& t : tasks) t();
    worked = fabric->pump() > 0 || worked;
    for (auto& m : machines)
      if (m->alive) worked = m->host->step() || worked;
    return worked;
  }
  void turns(int n) {
    for (int i = 0; i < n; ++i) turn();
  }
  /// Until nothing happens any more by itself.
  void settle() {
    for (int i = 0; i < 100'000; ++i)
      if (!turn()) return;
    FAIL("it does not come to rest");
  }
  /// Lets time go by, too: until all answers are over.
  void finish(const std::vector<std::shared_ptr<answer>>& all,
              std::chrono::milliseconds at_most = 60s) {
    for (auto waited = 0ms; waited < at_most; waited += 50ms) {
      settle();
      if (std::all_of(all.begin(), all.end(), [](const auto& a) { return a->over(); })) return;
      advance(50ms);
    }
    FAIL("not all answers are over");
  }

  struct wish {
    std::string prompt = "Once upon a time";
    std::uint32_t max_tokens = 24;
    std::uint16_t choices = 1;
    std::chrono::milliseconds timeout = 120s;
  };
  struct asked {
    std::shared_ptr<answer> a;
    request::request_id id;
    std::string name;
  };
  asked ask(const wish& w) {
    capnp::MallocMessageBuilder b;
    auto c = b.initRoot<msg::Completion>();
    c.setModel("m");
    c.getPrompt().setText(w.prompt);
    c.setMaxTokens(w.max_tokens);
    c.setChoices(w.choices);
    c.initSampling().setTemperature(0);
    auto content = std::make_shared<request::prompt_content>();
    content->words = capnp::messageToFlatArray(b);
    // Chained as a gateway does, with any hash.
    std::uint64_t h = 17;
    for (std::size_t at = 0; at + 512 <= w.prompt.size(); at += 512)
      content->chain.push_back(h = h * 31 + std::hash<std::string>{}(w.prompt.substr(at, 512)));
    request::submission s;
    s.id = {5, next_id++};
    s.external_id = "r" + std::to_string(s.id.low);
    s.model = "m";
    s.prompts = {content};
    s.choices = w.choices;
    s.max_tokens = w.max_tokens;
    s.timeout = w.timeout;
    asked result{std::make_shared<answer>(), s.id, s.external_id};
    s.client = result.a;
    REQUIRE(hub.front->submit(std::move(s)));
    return result;
  }
  /// Asks and waits for the end.
  std::shared_ptr<answer> answered(const wish& w) {
    auto x = ask(w);
    finish({x.a});
    return x.a;
  }

  /// What the audits say: every book balances and nobody holds anything.
  void check_all_idle() {
    settle();
    advance(1s);
    settle();
    CHECK(hub.jobs->size() == 0);
    CHECK(hub.gate->open() == 0);
    take_envelopes<msg::WorkerReport>(launcher);
    for (auto& m : machines) {
      if (!m->alive) continue;
      INFO(m->name);
      CHECK(m->host->routes() == 0);
      const auto books = m->host->engine().audit();
      CHECK(books.mismatches.empty());
      CHECK(books.jobs == 0);
      CHECK(books.referenced == 0);
      if (m->hand_over) {
        const auto g = m->hand_over->read_gauges();
        CHECK(g.sending + g.receiving + g.early_opens == 0);
        CHECK(g.buffers_free == g.buffers);
      }
    }
    advance(1s);
    settle();
    std::map<std::string, bool> idle;
    for (auto& [from, e] : take_envelopes<msg::WorkerReport>(launcher)) {
      msg::view<msg::WorkerReport> r{e};
      idle[r->getWorker().cStr()] = r->getIdle();
    }
    for (auto& m : machines)
      if (m->alive) CHECK(idle[m->name]);
  }

  static constexpr std::size_t piece_bytes = 4'096;
};

/// The same question to a fleet of one.
inline std::shared_ptr<answer> reference(const fleet::wish& w, const engine_terms& terms = {}) {
  fleet f;
  f.add("both/p/a.0", 1, msg::Role::BOTH, terms);
  auto a = f.answered(w);
  REQUIRE(a->end);
  return a;
}

}  // namespace troupe::test
