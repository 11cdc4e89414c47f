#include "actors/control/assignment.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace troupe::control {

namespace {

error bad(std::string why) { return {"bad_assignment", std::move(why)}; }

}  // namespace

double width(key64 first, key64 last) {
  constexpr double all = 18446744073709551616.0;  // 2^64
  return (static_cast<double>(last - first) + 1) / all;
}

assignment::assignment(assignment_number number, std::vector<std::string> shards,
                       std::vector<slice> slices)
    : number_(number), shards_(std::move(shards)), slices_(std::move(slices)) {
  firsts_.reserve(slices_.size());
  for (const auto& s : slices_) firsts_.push_back(s.first);
}

expected<assignment> assignment::make(assignment_number number, std::vector<std::string> shards,
                                      std::vector<slice> slices) {
  if (shards.empty() || shards.size() > shards_max)
    return bad(std::to_string(shards.size()) + " shards");
  if (std::set<std::string>(shards.begin(), shards.end()).size() != shards.size())
    return bad("a shard stands twice");
  if (slices.empty() || slices.size() > slices_max)
    return bad(std::to_string(slices.size()) + " slices");
  if (slices.front().first != 0) return bad("the first keys belong to nobody");
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const auto& r = slices[i].replicas;
    if (i > 0 && slices[i].first <= slices[i - 1].first) return bad("slices are not in order");
    if (r.empty() || r.size() > replicas_max)
      return bad("a slice with " + std::to_string(r.size()) + " shards");
    for (std::size_t k = 0; k < r.size(); ++k)
      if (r[k] >= shards.size() || (k > 0 && r[k] <= r[k - 1]))
        return bad("a slice with shards that are not in order or not there");
  }
  return assignment{number, std::move(shards), std::move(slices)};
}

assignment assignment::uniform(std::vector<std::string> shards) {
  const auto n = shards.size();
  const auto count = n * uniform_slices_per_shard;
  std::vector<slice> slices;
  for (std::size_t i = 0; i < count; ++i) {
    // i * 2^64 / count without leaving 64 bits.
    const auto step = ~key64{0} / count;
    slices.push_back({i * step, {static_cast<std::uint16_t>(i % n)}});
  }
  return assignment{{}, std::move(shards), std::move(slices)};
}

std::size_t assignment::slice_of(key64 key) const {
  return static_cast<std::size_t>(std::upper_bound(firsts_.begin(), firsts_.end(), key) -
                                  firsts_.begin()) -
         1;
}

const std::string& assignment::shard_of(key64 key, std::uint64_t draw) const {
  const auto replicas = replicas_of(key);
  return shards_[replicas[draw % replicas.size()]];
}

bool assignment::has(const std::string& shard, key64 key) const {
  const auto replicas = replicas_of(key);
  return std::any_of(replicas.begin(), replicas.end(),
                     [&](std::uint16_t r) { return shards_[r] == shard; });
}

void write(msg::Assignment::Builder out, const assignment& a) {
  out.setTerm(a.number().term);
  out.setGeneration(a.number().generation);
  auto shards = out.initShards(static_cast<unsigned>(a.shards().size()));
  for (unsigned i = 0; i < shards.size(); ++i) shards.set(i, a.shards()[i]);
  auto slices = out.initSlices(static_cast<unsigned>(a.slices().size()));
  for (unsigned i = 0; i < slices.size(); ++i) {
    const auto& s = a.slices()[i];
    slices[i].setFirst(s.first);
    auto replicas = slices[i].initReplicas(static_cast<unsigned>(s.replicas.size()));
    for (unsigned k = 0; k < replicas.size(); ++k) replicas.set(k, s.replicas[k]);
  }
}

expected<assignment> read(msg::Assignment::Reader in) {
  if (in.getShards().size() > shards_max || in.getSlices().size() > slices_max)
    return bad("more shards or slices than there may be");
  if (in.getTerm() > term_max) return bad("a term that is none");
  std::vector<std::string> shards;
  for (auto name : in.getShards()) shards.emplace_back(name.cStr());
  std::vector<slice> slices;
  for (auto s : in.getSlices()) {
    slice x{s.getFirst(), {}};
    if (s.getReplicas().size() > replicas_max) return bad("a slice with too many shards");
    for (auto r : s.getReplicas()) x.replicas.push_back(r);
    slices.push_back(std::move(x));
  }
  return assignment::make({in.getTerm(), in.getGeneration()}, std::move(shards), std::move(slices));
}

}  // namespace troupe::control
