#include "apps/engine/loading_status.hpp"

#include "messages/engine.capnp.h"
#include "tests/support/deterministic_system.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <optional>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

struct scene : test::deterministic_system {
  std::shared_ptr<link::post_office> office = std::make_shared<link::post_office>();
  caf::actor launcher = capture();
  std::optional<apps::loading_status> loading;

  scene() {
    directory::entry e;
    e.name = "both/p/h0.0";
    e.generation = 7;
    loading.emplace(system, office, e, "launcher/p/h0.0");
    run();
  }
  ~scene() {
    loading.reset();
    run();
  }
  /// State, progress and failure of what the launcher has heard.
  std::vector<std::string> heard() {
    run();
    std::vector<std::string> out;
    for (const auto& [from, e] : take_envelopes<msg::EngineStatus>(launcher)) {
      msg::view<msg::EngineStatus> in{e};
      CHECK(from.from.generation == 7);
      const auto percent = std::lround(in->getProgress() * 100.0F);
      out.push_back(
          in->getEntry().getState() == msg::EntryState::FAILED
              ? "failed: " + std::string{in->getFailure().getMessage().cStr()}
              : (in->getEntry().getState() == msg::EntryState::LOADING ? "loading " : "? ") +
                    std::to_string(percent));
    }
    return out;
  }
};

using lines = std::vector<std::string>;

}  // namespace

TEST_CASE("how loading goes is said each second, and when the link is new") {
  scene s;
  s.office->bind("launcher/p/h0.0", 0, s.launcher);
  s.loading->set_progress(0.25F);
  s.advance(2s);
  CHECK(s.heard() == lines{"loading 25", "loading 25"});
  s.loading->tell();
  CHECK(s.heard() == lines{"loading 25"});
}

TEST_CASE("a failure from before the link came up is said once it is up") {
  scene s;
  s.loading->fail({"model_missing", "/m.gguf: no such file"});
  s.run();  // nobody is reached yet
  s.office->bind("launcher/p/h0.0", 0, s.launcher);
  s.loading->tell();
  CHECK(s.heard() == lines{"failed: /m.gguf: no such file"});
}
