#include "actors/admission/key_ring.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace troupe::admission {

namespace {

constexpr std::size_t key_random_bytes = 32;

}  // namespace

key_hash hash_key(std::string_view key) {
  // Looking an algorithm up costs more than hashing a key with it.
  static const EVP_MD* const sha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  key_hash out{};
  unsigned int size = 0;
  if (sha256 == nullptr ||
      EVP_Digest(key.data(), key.size(), out.data(), &size, sha256, nullptr) != 1)
    out.fill(0);
  return out;
}

bool read_hash(std::string_view hex, key_hash& out) {
  if (hex.size() != 2 * out.size()) return false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto* at = hex.data() + 2 * i;
    const auto [stop, ec] = std::from_chars(at, at + 2, out[i], 16);
    if (ec != std::errc{} || stop != at + 2) return false;
  }
  return true;
}

std::string to_hex(const key_hash& hash) {
  constexpr char digits[] = "0123456789abcdef";
  std::string out;
  for (const auto byte : hash) {
    out += digits[byte >> 4U];
    out += digits[byte & 15U];
  }
  return out;
}

std::string make_key() {
  unsigned char random[key_random_bytes];
  if (RAND_bytes(random, sizeof random) != 1) return {};
  unsigned char text[4 * (key_random_bytes / 3 + 1) + 1];
  const int size = EVP_EncodeBlock(text, random, sizeof random);
  std::string key = "tr-";
  for (int i = 0; i < size; ++i) {
    const char c = static_cast<char>(text[i]);
    if (c != '=') key += c == '+' ? '-' : c == '/' ? '_' : c;
  }
  OPENSSL_cleanse(random, sizeof random);
  return key;
}

bool key_owner::may_use(std::string_view model) const {
  return std::find(models.begin(), models.end(), model) != models.end();
}

key_ring::key_ring(const std::vector<entry>& all) {
  if (RAND_bytes(reinterpret_cast<unsigned char*>(&secret_), sizeof secret_) != 1) secret_ = 0;
  for (const auto& e : all) {
    for (const auto& hex : e.key_hashes) {
      key_hash hash{};
      if (read_hash(hex, hash)) keys_.emplace(place_of(hash), held_key{hash, owners_.size()});
    }
    owners_.push_back(e.owner);
  }
}

std::uint64_t key_ring::place_of(const key_hash& hash) const {
  return XXH3_64bits_withSeed(hash.data(), hash.size(), secret_);
}

const key_owner* key_ring::find(std::string_view key) const {
  if (key.empty() || key.size() > key_bytes_max) return nullptr;
  const auto hash = hash_key(key);
  const key_owner* found = nullptr;
  const auto [from, to] = keys_.equal_range(place_of(hash));
  for (auto i = from; i != to; ++i)
    if (CRYPTO_memcmp(i->second.hash.data(), hash.data(), hash.size()) == 0)
      found = &owners_[i->second.owner];
  return found;
}

std::uint64_t cluster_chain_key(const std::string& cluster_id) {
  const auto hash = hash_key("troupe prompt chain of " + cluster_id);
  std::uint64_t key = 0;
  std::memcpy(&key, hash.data(), sizeof key);
  return key;
}

tenant_salt salt_of(const std::string& cluster_id, const std::string& tenant) {
  const auto hash = hash_key("troupe prompt chain of " + cluster_id + " for tenant " + tenant);
  tenant_salt out;
  std::memcpy(&out.chain_key, hash.data(), sizeof out.chain_key);
  std::memcpy(&out.prefix_scope, hash.data() + sizeof out.chain_key, sizeof out.prefix_scope);
  out.prefix_scope |= 1U;
  return out;
}

}  // namespace troupe::admission
