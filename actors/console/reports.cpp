#include "actors/console/reports.hpp"

#include "actors/router/shard_name.hpp"

#include <algorithm>
#include <utility>

namespace troupe::console {

namespace {

unsigned cut(std::size_t size, std::size_t most) {
  return static_cast<unsigned>(std::min(size, most));
}

void write(capnp::List<msg::TreeNode>::Builder out, const std::vector<tree_node>& nodes) {
  for (unsigned i = 0; i < out.size(); ++i) {
    const auto& n = nodes[i];
    auto o = out[i];
    o.setName(n.child.id);
    o.setState(to_string(n.child.now));
    o.setGeneration(n.child.generation);
    o.setRestarts(n.child.restarts);
    o.setLastEnd(n.child.last_end);
    o.setMailbox(n.mailbox ? static_cast<std::int64_t>(*n.mailbox) : -1);
    o.setSilent(n.silent);
    auto facts = o.initFacts(static_cast<unsigned>(n.facts.size()));
    for (unsigned k = 0; k < facts.size(); ++k) {
      facts[k].setKey(n.facts[k].first);
      facts[k].setValue(n.facts[k].second);
    }
    write(o.initChildren(static_cast<unsigned>(n.children.size())), n.children);
  }
}

void write(msg::Books::Hub::Builder out, const host_books::hub_part& h) {
  out.setPresent(true);
  out.setGeneration(h.generation);
  out.setTicketCount(h.tickets);
  out.setPromptBytes(h.prompt_bytes);
  out.setRequestCount(static_cast<std::uint32_t>(h.requests.size()));
  auto requests = out.initRequests(cut(h.requests.size(), requests_listed_max));
  for (unsigned i = 0; i < requests.size(); ++i)
    msg::write(requests[i], job_key{h.requests[i], 0, 0});
  out.setLeaseCount(static_cast<std::uint32_t>(h.leases.size()));
  auto leases = out.initLeases(cut(h.leases.size(), leases_listed_max));
  auto by = out.initLeaseShards(leases.size());
  for (unsigned i = 0; i < leases.size(); ++i) {
    by.set(i, h.leases[i].first);
    leases.set(i, h.leases[i].second);
  }
  std::size_t count = 0;
  for (const auto& [worker, keys] : h.jobs) count += keys.size();
  out.setJobCount(static_cast<std::uint32_t>(count));
  auto jobs = out.initJobs(cut(count, jobs_listed_max));
  unsigned next = 0;
  for (const auto& [worker, keys] : h.jobs)
    for (const auto& key : keys) {
      if (next == jobs.size()) return;
      auto j = jobs[next++];
      j.setWorker(worker.first);
      j.setGeneration(worker.second);
      msg::write(j.initKey(), key);
    }
}

/// A node of a version that had one router only names none.
std::string shard_of(std::string name) {
  return name.empty() ? router::shard_name(0) : std::move(name);
}

}  // namespace

const char* to_string(supervision::child_report::condition c) {
  using condition = supervision::child_report::condition;
  switch (c) {
  case condition::running:
    return "running";
  case condition::stopping:
    return "stopping";
  case condition::waiting:
    return "waiting";
  case condition::ended:
    break;
  }
  return "ended";
}

void write(msg::NodeReport::Builder out, const std::vector<tree_node>& roots) {
  write(out.initTree(static_cast<unsigned>(roots.size())), roots);
}

void write(msg::NodeReport::Builder out, const health::verdicts_report& r) {
  auto list = out.initHealth(static_cast<unsigned>(r.engines.size()));
  for (unsigned i = 0; i < list.size(); ++i) {
    const auto& e = r.engines[i];
    list[i].setEngine(e.engine);
    list[i].setGeneration(e.generation);
    list[i].setVerdict(health::to_string(e.is.what));
    list[i].setEvidence(e.is.evidence);
    list[i].setSteps(e.account.steps);
    list[i].setTicks(e.account.ticks);
    list[i].setTokens(e.account.tokens);
    list[i].setJobs(e.account.jobs);
    list[i].setSinceMs(static_cast<std::uint64_t>(e.since.count()));
    list[i].setProbesSent(e.probes_sent);
    list[i].setProbesAnswered(e.probes_answered);
  }
}

void write(msg::NodeReport::Builder out, const request::requests_report& r) {
  auto list = out.initRequests(cut(r.requests.size(), requests_listed_max));
  for (unsigned i = 0; i < list.size(); ++i) {
    const auto& x = r.requests[i];
    list[i].setExternalId(x.external_id);
    list[i].setModel(x.model);
    list[i].setAgeMs(static_cast<std::uint64_t>(x.age.count()));
    list[i].setPromptBytes(x.prompt_bytes);
    msg::write(list[i].initKey(), job_key{x.id, 0, 0});
  }
}

void write(msg::Shards::Builder out, const host_shards& s) {
  if (s.assigned) {
    const auto& a = *s.assigned;
    out.setTerm(a.number().term);
    out.setGeneration(a.number().generation);
    auto list = out.initAssigned(static_cast<unsigned>(a.shards().size()));
    for (unsigned i = 0; i < list.size(); ++i) list[i].setShard(a.shards()[i]);
    for (std::size_t i = 0; i < a.slices().size(); ++i) {
      const auto& x = a.slices()[i];
      const auto part = control::width(x.first, a.last_of(i)) /
                        static_cast<double>(x.replicas.size());
      for (auto r : x.replicas) {
        list[r].setSlices(list[r].getSlices() + 1);
        list[r].setPart(list[r].getPart() + part);
      }
    }
  }
  auto here = out.initHere(static_cast<unsigned>(s.here.size()));
  for (unsigned i = 0; i < here.size(); ++i) {
    auto load = s.here[i];
    // People look at the sum.
    double sum = 0;
    for (const auto& r : load.ranges) sum += r.load;
    load.ranges = {{0, ~control::key64{0}, sum}};
    load.keys.clear();
    control::write(here[i], load);
  }
  if (s.control) {
    auto c = out.initControl();
    c.setPresent(true);
    c.setTerm(s.control->number.term);
    c.setGeneration(s.control->number.generation);
    if (s.control->made_ago) c.setMadeMs(s.control->made_ago->count());
    c.setImbalance(s.control->imbalance);
    c.setChurn(s.control->churn);
    auto lost = c.initLost(static_cast<unsigned>(s.control->lost.size()));
    for (unsigned i = 0; i < lost.size(); ++i) lost.set(i, s.control->lost[i]);
    c.setProblem(s.control->problem);
  }
  auto silent = out.initSilent(static_cast<unsigned>(s.silent.size()));
  for (unsigned i = 0; i < silent.size(); ++i) silent.set(i, s.silent[i]);
}

void write(msg::Reloaded::Builder out, const reload_result& r) {
  out.setApplied(r.applied);
  out.setGeneration(r.generation);
  out.setDigest(r.digest);
  out.setFileDigest(r.file_digest);
  auto list = out.initProblems(cut(r.problems.size(), problems_listed_max));
  for (unsigned i = 0; i < list.size(); ++i) list.set(i, r.problems[i]);
}

void write(msg::Books::Builder out, const host_books& b) {
  if (b.has_hub) write(out.initHub(), b.hub);
  if (!b.shards.empty()) {
    auto router = out.initRouter();
    router.setPresent(true);
    auto shards = router.initShards(static_cast<unsigned>(b.shards.size()));
    for (unsigned i = 0; i < shards.size(); ++i) shards.set(i, b.shards[i]);
    router.setLeaseCount(static_cast<std::uint32_t>(b.leases.size()));
    auto leases = router.initLeases(cut(b.leases.size(), leases_listed_max));
    for (unsigned i = 0; i < leases.size(); ++i) {
      const auto& l = b.leases[i];
      leases[i].setId(l.id);
      leases[i].setHost(l.host);
      leases[i].setIncarnation(l.incarnation);
      leases[i].setPrefill(l.prefill);
      leases[i].setDecode(l.decode);
      leases[i].setTokens(l.tokens);
      leases[i].setShard(l.shard);
    }
  }
  auto engines = out.initEngines(static_cast<unsigned>(b.engines.size()));
  auto left = engine_jobs_listed_max;
  for (unsigned i = 0; i < engines.size(); ++i) {
    const auto& e = b.engines[i];
    auto o = engines[i];
    o.setWorker(e.worker);
    o.setGeneration(e.generation);
    o.setLedgerTokens(e.ledger_tokens);
    o.setEngineCells(e.engine_cells);
    o.setReferenced(e.referenced);
    o.setJobs(e.jobs);
    o.setTransfers(e.transfers);
    o.setEarlyOpens(e.early_opens);
    o.setBuffers(e.buffers);
    o.setBuffersFree(e.buffers_free);
    o.setAssemblingBytes(e.assembling_bytes);
    auto mismatches = o.initMismatches(cut(e.mismatches.size(), mismatches_listed_max));
    for (unsigned k = 0; k < mismatches.size(); ++k) mismatches.set(k, e.mismatches[k]);
    o.setKeyCount(static_cast<std::uint32_t>(e.key_count));
    auto keys = o.initKeys(cut(e.keys.size(), left));
    for (unsigned k = 0; k < keys.size(); ++k) msg::write(keys[k], e.keys[k]);
    left -= keys.size();
  }
  auto silent = out.initSilent(static_cast<unsigned>(b.silent.size()));
  for (unsigned i = 0; i < silent.size(); ++i) silent.set(i, b.silent[i]);
}

host_books::engine_part read(msg::Audit::Reader in) {
  host_books::engine_part e;
  e.worker = in.getWorker().cStr();
  e.generation = in.getGeneration();
  for (auto key : in.getKeys()) e.keys.push_back(msg::read(key));
  e.key_count = in.getKeyCount();
  e.jobs = in.getJobs();
  e.transfers = in.getTransfers();
  e.early_opens = in.getEarlyOpens();
  e.buffers = in.getBuffers();
  e.buffers_free = in.getBuffersFree();
  e.assembling_bytes = in.getAssemblingBytes();
  e.referenced = in.getReferenced();
  e.ledger_tokens = in.getLedgerTokens();
  e.engine_cells = in.getEngineCells();
  for (auto line : in.getMismatches()) e.mismatches.emplace_back(line.cStr());
  return e;
}

host_books read(msg::Books::Reader in, const std::string& host) {
  host_books b;
  b.host = host;
  const auto hub = in.getHub();
  b.has_hub = hub.getPresent();
  b.hub.generation = hub.getGeneration();
  b.hub.tickets = hub.getTicketCount();
  b.hub.prompt_bytes = hub.getPromptBytes();
  for (auto key : hub.getRequests()) b.hub.requests.push_back(msg::read(key).id);
  for (auto j : hub.getJobs())
    b.hub.jobs[{j.getWorker().cStr(), j.getGeneration()}].push_back(msg::read(j.getKey()));
  const auto granted_by = hub.getLeaseShards();
  for (unsigned i = 0; i < hub.getLeases().size(); ++i)
    b.hub.leases.emplace_back(shard_of(i < granted_by.size() ? granted_by[i].cStr() : ""),
                              hub.getLeases()[i]);
  b.hub.left_out = (hub.getRequestCount() - hub.getRequests().size()) +
                   (hub.getJobCount() - hub.getJobs().size()) +
                   (hub.getLeaseCount() - hub.getLeases().size());
  const auto router = in.getRouter();
  for (auto s : router.getShards()) b.shards.emplace_back(s.cStr());
  if (router.getPresent() && b.shards.empty()) b.shards.push_back(shard_of(""));
  for (auto l : router.getLeases())
    b.leases.push_back({l.getId(), l.getHost().cStr(), l.getIncarnation(), l.getPrefill().cStr(),
                        l.getDecode().cStr(), l.getTokens(), shard_of(l.getShard().cStr())});
  b.leases_left_out = router.getLeaseCount() - router.getLeases().size();
  for (auto e : in.getEngines()) b.engines.push_back(read(e));
  for (auto name : in.getSilent()) b.silent.emplace_back(name.cStr());
  return b;
}

}  // namespace troupe::console
