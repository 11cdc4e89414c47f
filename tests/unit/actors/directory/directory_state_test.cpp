#include "actors/directory/directory_state.hpp"

#include <catch2/catch.hpp>

using namespace troupe;
using directory::change;
using directory::directory_state;
using directory::entry;

namespace {

const directory_state::process_id process_a(16, 0xA);
const directory_state::process_id process_b(16, 0xB);
const directory_state::process_id process_b2(16, 0xC);

entry worker(std::string name, std::uint64_t generation,
             msg::EntryState state = msg::EntryState::READY) {
  entry e;
  e.name = std::move(name);
  e.generation = generation;
  e.state = state;
  e.role = msg::Role::DECODE;
  e.transfer_address = {1, 2, 3};
  e.transfer_kind = "ucx";
  e.slots = 8;
  e.detail = "x";
  return e;
}

change merge(directory_state& to, const directory_state& from) {
  auto e = from.own_update();
  msg::view<msg::DirectoryUpdate> v{e};
  return to.merge(*v);
}

}  // namespace

TEST_CASE("a peer's set arrives whole, with every field") {
  directory_state a{"a", process_a}, b{"b", process_b};
  (void)b.set_own(worker("decode/p/b.0", 5));
  auto c = merge(a, b);
  REQUIRE(c.added_or_changed.size() == 1);
  auto all = a.all();
  REQUIRE(all->contains("decode/p/b.0"));
  auto expected = worker("decode/p/b.0", 5);
  expected.host = "b";
  CHECK(all->at("decode/p/b.0") == expected);
}

TEST_CASE("an update with a version not above the last is dropped") {
  directory_state a{"a", process_a}, b{"b", process_b};
  (void)b.set_own(worker("w", 1, msg::EntryState::LOADING));
  auto old = b.own_update();
  (void)b.set_own(worker("w", 1, msg::EntryState::READY));
  (void)merge(a, b);
  CHECK(merge(a, b).empty());
  msg::view<msg::DirectoryUpdate> stale{old};
  CHECK(a.merge(*stale).empty());
  CHECK(a.all()->at("w").state == msg::EntryState::READY);
}

TEST_CASE("a new process of a host replaces its set, whatever its version") {
  directory_state a{"a", process_a}, b{"b", process_b}, restarted{"b", process_b2};
  (void)b.set_own(worker("gone", 1));
  (void)b.set_own(worker("stays", 1));
  (void)b.set_own(worker("stays", 1, msg::EntryState::DRAINING));
  (void)merge(a, b);
  (void)restarted.set_own(worker("stays", 9));
  auto c = merge(a, restarted);
  REQUIRE(c.added_or_changed.size() == 1);
  CHECK(c.added_or_changed[0].generation == 9);
  REQUIRE(c.removed.size() == 1);
  CHECK(c.removed[0].name == "gone");
}

TEST_CASE("nobody else speaks for our own host") {
  directory_state a{"a", process_a}, impostor{"a", process_b};
  (void)a.set_own(worker("w", 1));
  (void)impostor.set_own(worker("w", 2));
  CHECK(merge(a, impostor).empty());
  CHECK(a.all()->at("w").generation == 1);
}

TEST_CASE("an entry's host is its authority, not what it claims") {
  directory_state a{"a", process_a}, b{"b", process_b};
  auto e = worker("w", 1);
  e.host = "a";
  (void)b.set_own(e);
  (void)merge(a, b);
  CHECK(a.all()->at("w").host == "b");
}

TEST_CASE("a late word of an older incarnation changes nothing") {
  directory_state a{"a", process_a};
  CHECK_FALSE(a.set_own(worker("w", 2)).empty());
  CHECK(a.set_own(worker("w", 1, msg::EntryState::FAILED)).empty());
  CHECK(a.set_own(worker("w", 2)).empty());  // no news
  CHECK_FALSE(a.set_own(worker("w", 3)).empty());
}

TEST_CASE("a lost host's entries are removed, and come back with its next set") {
  directory_state a{"a", process_a}, b{"b", process_b};
  (void)b.set_own(worker("w", 1));
  (void)merge(a, b);
  auto c = a.lose_host("b");
  REQUIRE(c.removed.size() == 1);
  CHECK(a.all()->empty());
  CHECK(a.lose_host("b").empty());
  CHECK_FALSE(merge(a, b).empty());  // same process, same version: the link was down, not the host
  CHECK(a.all()->contains("w"));
}

TEST_CASE("what is removed at its host is removed at the peers") {
  directory_state a{"a", process_a}, b{"b", process_b};
  (void)b.set_own(worker("w", 1));
  (void)merge(a, b);
  CHECK(b.remove_own("w", 0).empty());  // of an older incarnation
  CHECK(b.remove_own("w", 1).removed.size() == 1);
  CHECK(b.remove_own("w", 1).empty());
  CHECK(merge(a, b).removed.size() == 1);
}
