#include "actors/admission/key_ring.hpp"

#include <catch2/catch.hpp>

using namespace troupe::admission;

namespace {

// How it can fail: a key that opens another tenant's door, one that goes on after it was taken out,
// prefixes that two tenants share without having asked for it.

key_ring::entry of(std::string tenant, std::vector<std::string> keys,
                   std::vector<std::string> models) {
  key_ring::entry e;
  e.owner.tenant = std::move(tenant);
  e.owner.models = std::move(models);
  for (const auto& k : keys) e.key_hashes.push_back(to_hex(hash_key(k)));
  return e;
}

}  // namespace

TEST_CASE("a key opens its tenant's door only", "[admission]") {
  const auto a = make_key(), b = make_key(), old = make_key();
  const key_ring ring{{of("a", {a, old}, {"m"}), of("b", {b}, {"m", "n"})}};
  CHECK(ring.keys() == 3);
  REQUIRE(ring.find(a));
  CHECK(ring.find(a)->tenant == "a");
  CHECK(ring.find(old)->tenant == "a");
  CHECK(ring.find(b)->tenant == "b");
  CHECK(ring.find(b)->may_use("n"));
  CHECK_FALSE(ring.find(a)->may_use("n"));
  CHECK(ring.find(a + "x") == nullptr);
  CHECK(ring.find(a.substr(0, a.size() - 1)) == nullptr);
  CHECK(ring.find("") == nullptr);
  CHECK(ring.find(std::string(1'000'000, 'x')) == nullptr);
  CHECK(ring.find(to_hex(hash_key(a))) == nullptr);  // the hash is no key
}

TEST_CASE("keys are new each time, and safe in a header", "[admission]") {
  const auto a = make_key(), b = make_key();
  CHECK(a != b);
  CHECK(a.size() == 3 + 43);
  CHECK(a.find_first_not_of("tr-ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") ==
        std::string::npos);
}

TEST_CASE("hashes are SHA-256", "[admission]") {
  CHECK(to_hex(hash_key("abc")) ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  key_hash h{};
  CHECK(read_hash(to_hex(hash_key("abc")), h));
  CHECK(h == hash_key("abc"));
  CHECK_FALSE(read_hash("ba78", h));
  CHECK_FALSE(read_hash(std::string(64, 'g'), h));
}

TEST_CASE("each tenant has a salt of its own", "[admission]") {
  CHECK(salt_of("c", "a").chain_key != salt_of("c", "b").chain_key);
  CHECK(salt_of("c", "a").prefix_scope != salt_of("c", "b").prefix_scope);
  CHECK(salt_of("c", "a").prefix_scope != salt_of("d", "a").prefix_scope);
  CHECK(salt_of("c", "a").prefix_scope != 0);
}
