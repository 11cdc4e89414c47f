#pragma once

// A launcher whose engine's process a test plays, and whoever it talks to.

#include "actors/launcher/launcher_actor.hpp"
#include "tests/support/deterministic_system.hpp"

#include <catch2/catch.hpp>

#include <spdlog/spdlog.h>

#include <csignal>

namespace troupe::launcher::testing {

using namespace std::chrono_literals;
using directory::set_entry;
using state = msg::EntryState;

struct fake_process : process {
  explicit fake_process(std::vector<int>& s, bool& a) : signals(s), alive(a) { alive = true; }
  ~fake_process() override { alive = false; }
  pid_t pid() const override { return 4711; }
  void signal(int number) override { signals.push_back(number); }
  std::vector<int>& signals;
  bool& alive;
};

struct fake_board : crash::board_source {
  explicit fake_board(const std::optional<crash::board_reading>& w) : words(w) {}
  int descriptor() const override { return 42; }
  std::optional<crash::board_reading> read() const override { return words; }
  const std::optional<crash::board_reading>& words;
};

struct records {
  std::vector<child_process::options> starts;
  std::vector<int> signals;
  bool alive = false;
  bool cannot_start = false;
  std::optional<crash::board_reading> last_words;  ///< what boards say that are read
  std::uint64_t generation = 100;
};

/// The records come first, since processes still write to them while the system ends.
struct scene : records, test::deterministic_system {
  std::shared_ptr<link::post_office> office = std::make_shared<link::post_office>();
  caf::actor directory = capture();
  caf::actor worker = capture();
  caf::actor neighbour = capture();
  caf::actor watchdog = capture();
  caf::actor asker = capture();
  caf::actor hub = capture();
  caf::actor other_hub = capture();
  std::shared_ptr<directory::directory_view> view = std::make_shared<directory::directory_view>();
  caf::actor launcher;
  launcher_options options;

  explicit scene(supervision::restart_limits limits = {3, 60s, 100ms, 100ms}) {
    spdlog::set_level(spdlog::level::off);
    launcher_options o;
    o.engine = {"decode/p/h0.0", "p", "h0", 0};
    o.role = config::pool_role::decode;
    o.model = "m";
    o.program = "/bin/troupe";
    o.config_file = "/c.toml";
    o.node_port = 7;
    o.secret = {1, 2, 3};
    o.next_generation = [this] { return ++generation; };
    o.restarts = limits;
    o.load_timeout = 10s;
    o.unlinked_max = 5s;
    o.neighbours = {"prefill/p/h0.0"};
    o.watchdog = [this] { return watchdog; };
    o.office = office;
    o.directory = directory;
    o.view = view;
    o.make_board = [this] {
      return expected<std::unique_ptr<crash::board_source>>{
          std::make_unique<fake_board>(last_words)};
    };
    auto all = std::make_shared<directory::snapshot>();
    for (const auto* name : {"requests/h0", "requests/h1", "router/0"}) {
      auto& e = (*all)[name];
      e.name = name;
      e.role = name[1] == 'o' ? msg::Role::ROUTER : msg::Role::REQUESTS;
    }
    view->set(all);
    office->bind("requests/h0", 0, hub);
    office->bind("requests/h1", 0, other_hub);
    o.start = [this](child_process::options x) -> expected<std::unique_ptr<process>> {
      if (cannot_start) return error{"spawn_failed", "no memory"};
      starts.push_back(std::move(x));
      return std::unique_ptr<process>{std::make_unique<fake_process>(signals, alive)};
    };
    options = std::move(o);
    spawn();
    office->bind("decode/p/h0.0", 0, worker);
    office->bind("prefill/p/h0.0", 0, neighbour);
    run();
  }

  void spawn() { launcher = own(spawn_launcher(system, options)); }
  /// The launcher is lost, and its supervisor starts the next one.
  void restart_launcher() {
    caf::anon_send_exit(launcher, caf::exit_reason::kill);
    run();
    spawn();
    run();
  }

  void tell_status(state what, std::uint64_t of, const std::string& failure = {},
                   float progress = 0) {
    msg::draft<msg::EngineStatus> d;
    d->setProgress(progress);
    auto e = d->initEntry();
    e.setState(what);
    e.setSlots(8);
    e.setTransferKind("ucx");
    if (what == state::READY) e.setTransferAddress("where"_kj.asBytes());
    if (!failure.empty()) d->initFailure().setMessage(failure);
    office->send({launcher_name({"decode/p/h0.0", "p", "h0", 0}), 0}, {"decode/p/h0.0", of},
                 std::move(d).freeze().value());
    run();
  }
  void tell_report(std::uint64_t of, bool idle, std::uint32_t jobs = 0, std::uint64_t hold = 0,
                   std::uint64_t tokens = 0) {
    msg::draft<msg::WorkerReport> d;
    d->setGeneration(of);
    d->setIdle(idle);
    d->setJobs(jobs);
    d->setHold(hold);
    d->setPrefilledTokens(tokens);
    office->send({launcher_name({"decode/p/h0.0", "p", "h0", 0}), 0}, {"decode/p/h0.0", of},
                 std::move(d).freeze().value());
    run();
  }
  void child_ends(int code, bool signalled = false) {
    starts.back().on_exit({signalled, code});
    run();
  }
  std::vector<directory::entry> announced() {
    std::vector<directory::entry> out;
    for (auto& x : take<set_entry>(directory)) out.push_back(std::move(x.value));
    return out;
  }
  directory::entry last_announced() {
    auto all = announced();
    REQUIRE_FALSE(all.empty());
    return all.back();
  }
  bool launcher_ended() {
    bool ended = false;
    auto watcher = system.spawn(
        [&](caf::event_based_actor* self, const caf::actor& watched) -> caf::behavior {
          self->monitor(watched);
          self->set_down_handler([&ended](caf::down_msg&) { ended = true; });
          return {[](caf::unit_t) {}};
        },
        launcher);
    run();
    caf::anon_send_exit(watcher, caf::exit_reason::kill);
    run();
    return ended;
  }
};

}  // namespace troupe::launcher::testing
