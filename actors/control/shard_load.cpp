#include "actors/control/shard_load.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::control {

namespace {

unsigned cut(std::size_t size, std::size_t most) {
  return static_cast<unsigned>(std::min(size, most));
}

double sane(double x) { return std::isfinite(x) && x > 0 ? std::min(x, load_told_max) : 0; }

}  // namespace

void write(msg::ShardLoad::Builder out, const shard_load& in) {
  out.setShard(in.shard);
  out.setShardGeneration(in.generation);
  out.setTerm(in.goes_by.term);
  out.setGeneration(in.goes_by.generation);
  auto ranges = out.initRanges(cut(in.ranges.size(), slices_max));
  for (unsigned i = 0; i < ranges.size(); ++i) {
    ranges[i].setFirst(in.ranges[i].first);
    ranges[i].setLast(in.ranges[i].last);
    ranges[i].setLoad(in.ranges[i].load);
  }
  auto keys = out.initKeys(cut(in.keys.size(), keys_told_max));
  for (unsigned i = 0; i < keys.size(); ++i) {
    keys[i].setKey(in.keys[i].key);
    keys[i].setLoad(in.keys[i].load);
  }
  out.setRequests(in.requests);
  out.setMisrouted(in.misrouted);
  out.setRequestsPerSecond(in.requests_per_second);
  out.setBlocks(in.blocks);
  out.setSessions(in.sessions);
  out.setLeases(in.leases);
}

shard_load read(msg::ShardLoad::Reader in) {
  shard_load out;
  out.shard = in.getShard().cStr();
  out.generation = in.getShardGeneration();
  out.goes_by = {in.getTerm(), in.getGeneration()};
  // Each look at a list counts against what reading the message may come to.
  const auto ranges = in.getRanges();
  for (unsigned i = 0; i < cut(ranges.size(), slices_max); ++i)
    out.ranges.push_back({ranges[i].getFirst(), ranges[i].getLast(), sane(ranges[i].getLoad())});
  const auto keys = in.getKeys();
  for (unsigned i = 0; i < cut(keys.size(), keys_told_max); ++i)
    out.keys.push_back({keys[i].getKey(), sane(keys[i].getLoad())});
  out.requests = in.getRequests();
  out.misrouted = in.getMisrouted();
  out.requests_per_second = sane(in.getRequestsPerSecond());
  out.blocks = in.getBlocks();
  out.sessions = in.getSessions();
  out.leases = in.getLeases();
  return out;
}

}  // namespace troupe::control
