#include "actors/directory/readiness.hpp"

#include <catch2/catch.hpp>

using namespace troupe;
using namespace troupe::directory;

namespace {

entry engine(const std::string& name, msg::Role role, msg::EntryState state,
             const std::string& slow = {}) {
  entry e;
  e.name = name;
  e.role = role;
  e.state = state;
  e.slow = slow;
  return e;
}

}  // namespace

TEST_CASE("a slow engine is ready, and said to be slow") {
  readiness r;
  r.add(engine("both/p/a.0", msg::Role::BOTH, msg::EntryState::READY, "ten times"));
  r.add(engine("both/p/b.0", msg::Role::BOTH, msg::EntryState::READY));
  CHECK(r.ready());
  CHECK(r.slow() == "both/p/a.0 is slow: ten times");
}

TEST_CASE("a model has failed when one half of it has nobody left who could be restarted") {
  const auto failed = [](std::initializer_list<std::pair<msg::Role, msg::EntryState>> engines) {
    readiness r;
    for (const auto& [role, state] : engines) r.add(engine("e", role, state));
    return r.failed();
  };
  using role = msg::Role;
  using state = msg::EntryState;
  CHECK_FALSE(failed({}));
  CHECK_FALSE(failed({{role::PREFILL, state::STARTING}}));
  CHECK(failed({{role::PREFILL, state::FAILED}}));
  CHECK(failed({{role::PREFILL, state::FAILED}, {role::DECODE, state::READY}}));
  CHECK_FALSE(failed({{role::PREFILL, state::FAILED}, {role::PREFILL, state::UNKNOWN}}));
  CHECK_FALSE(failed({{role::DECODE, state::FAILED}, {role::BOTH, state::LOADING}}));
  CHECK(failed({{role::DECODE, state::FAILED}, {role::BOTH, state::FAILED}}));
}

TEST_CASE("a model whose engines are quick has nothing to say, and slowness is no readiness") {
  readiness quick, gone;
  quick.add(engine("both/p/a.0", msg::Role::BOTH, msg::EntryState::READY));
  CHECK(quick.slow().empty());
  gone.add(engine("both/p/a.0", msg::Role::BOTH, msg::EntryState::UNKNOWN, "ten times"));
  CHECK_FALSE(gone.ready());
  CHECK(gone.slow().empty());
  CHECK_THAT(gone.reasons(), Catch::Contains("slow"));
}
