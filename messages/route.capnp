# Choosing workers: from request actors to a router shard, and from workers to it.
@0xec922009452f4bc2;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::msg");

using import "common.capnp".JobKey;
using import "common.capnp".Failure;
using import "job.capnp".WorkerRef;

struct RouteRequest {
  key @0 :JobKey;
  replyTo @1 :Text;
  model @2 :Text;
  promptBytes @3 :UInt32;
  chain @4 :List(UInt64);      # XXH3 chain over 512-byte blocks of the canonical prompt
  maxTokens @5 :UInt32;
  choices @6 :UInt16;
  exclude @7 :List(Text);      # workers that failed this request
  session @8 :Text;            # sticky key, or empty
  resumedTokens @9 :UInt32;
  quarantine @10 :Bool;        # under suspicion: to workers that have no other such request
  moveFrom @11 :Text;          # a running stream leaves this worker: a place for it that can take its KV
  workload @12 :Text;          # whose workers are apart from others' in a large pool: the tenant; empty: nobody's
  shardKey @13 :UInt64;        # by which the shard was chosen
  term @14 :UInt64;            # of the assignment by which it was
  assignmentGeneration @15 :UInt64; # the same
}

enum TransferPlan {
  local @0;                    # one worker of role both
  full @1;                     # prefill sends all of the KV
  fromPosition @2;             # decode keeps what it has, prefill sends the rest
  decodePrefills @3;           # decode computes the suffix itself
  move @4;                     # the worker that the stream leaves sends all of its KV, as if it had prefilled
}

struct Route {
  key @0 :JobKey;
  plan @1 :TransferPlan;
  prefill @2 :WorkerRef;       # empty name for local and decodePrefills
  decode @3 :WorkerRef;
  lease @4 :UInt64;            # of the shard that sends this; given back to it by RouteRelease, or when the request's node is lost or its hub replaced
  unused5 @5 :UInt32;
  reason @6 :Text;             # scores of the best and of the next
}

struct RouteRefused { key @0 :JobKey; failure @1 :Failure; }
struct RouteRelease {
  # Its sender's generation is the hub's incarnation: what earlier ones had leased is free, too.
  leases @0 :List(UInt64);
  host @1 :Text;
  prefills @2 :List(UInt64);   # leases whose prefill worker has done its share; decode goes on
  cleared @3 :List(UInt64);    # leases whose request is no longer under suspicion; it goes on
  outcomes @4 :List(RouteOutcome);  # of leases that are open
}

struct RouteOutcome {
  # What came of a route: the shard's next choices go by it.
  lease @0 :UInt64;
  promptTokens @1 :UInt32;     # 0: not known
  cachedTokens @2 :UInt32;     # of them, where the prompt was computed
  transferBytes @3 :UInt64;    # 0: nothing was transferred, or it is not known
  wireUs @4 :UInt64;           # that they were under way
}

struct WorkerReport {
  # A worker's own truth, each second and at each change of state. A missing report is "unknown", not "idle".
  worker @0 :Text;
  generation @1 :UInt64;
  running @2 :UInt32;
  queued @3 :UInt32;
  queuedTokens @4 :UInt64;     # prompt tokens not yet computed; estimated of prompts that are not tokenised yet
  kvUsedTokens @5 :UInt32;     # referenced by requests or transfers
  kvCachedTokens @6 :UInt32;   # unreferenced prefixes: free when needed
  kvTotalTokens @7 :UInt32;
  steps @8 :UInt64;
  ticks @9 :UInt64;            # progress inside a step
  sampledTokens @10 :UInt64;
  prefilledTokens @11 :UInt64;
  transferBytes @12 :UInt64;
  prefillTokensPerSecond @13 :Float32;
  decodeTokensPerSecond @14 :Float32;
  bytesPerToken @15 :Float32;  # measured, of prompts
  idle @16 :Bool;              # no job, no transfer, every KV cell free or cached
  stepping @17 :Bool;          # a scheduler step is under way
  atHand @18 :UInt32;          # tokens in that step's forward pass
  busyUs @19 :UInt64;          # spent in forward passes that ended
  probes @20 :UInt64;          # that were answered; in none of the other counters
  jobs @21 :UInt32;            # whatever their phase
  faults @22 :UInt64;          # jobs that the engine itself failed: a pass without an end, or without numbers
  stalls @23 :UInt64;          # jobs that the engine forgot while others got on, ended for that
  preparing @24 :UInt32;       # prompts that tokeniser threads have in hand
  unprepared @25 :UInt32;      # prompts that wait for one
  preparingSign @26 :UInt64;   # number of the last sign of progress of the one in hand that has given none for longest; of all, while none is in hand
  preparingComputedMs @27 :UInt64;  # what its thread has computed since then
  preparingBytes @28 :UInt64;  # its request's
  transferRounds @29 :UInt64;  # of the KV transport's thread, several a second; 0: it has none
  hold @30 :UInt64;            # number of the `Hold` in force; 0: none. An idle worker without one may have a job by now
  ticksInside @31 :Bool;       # ticks count inside a pass, from the first one on; false: at its end only, or nobody knows
  transferDeviceChanged @32 :UInt64;  # connections of the KV transport that failed because the host's address is on another network device than when it began
  furtherAnswers @33 :UInt32;  # that its jobs still sample beyond each one's first: each takes a place, too
}

struct PrefixEvents {
  # Numbered for each shard by itself: after a gap, and when it begins, that shard asks for everything by PrefixResync.
  worker @0 :Text;
  generation @1 :UInt64;
  sequence @2 :UInt64;         # of the first event here
  reset @3 :Bool;              # forget all before these
  added @4 :List(UInt64);
  dropped @5 :List(UInt64);
  more @6 :Bool;               # the rest of everything follows in further messages
}
struct PrefixResync { worker @0 :Text; generation @1 :UInt64; }
