# Between an engine process and the launchers on the same node.
@0xf757e96e98b8cdde;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::msg");

using import "directory.capnp".Entry;
using import "common.capnp".Failure;

struct EngineStatus {
  # At every change, and each second while loading.
  entry @0 :Entry;
  failure @1 :Failure;         # with state failed: what, where and what to do
  progress @2 :Float32;        # of loading, 0 to 1; one that no longer grows is no progress
}

struct EngineCommand {
  union {
    unused0 @0 :UInt32;
    stop @1 :UInt32;           # cancel all and end within so many ms
    audit @2 :Void;            # answer with Audit
    peerEnded @3 :PeerEnded;
    hold @4 :Hold;             # take no new jobs until `release`
    release @5 :Void;
  }
}

struct Hold {
  # A second one replaces the first.
  withinMs @0 :UInt32;         # what runs may end by itself so long; the rest then ends as retryable
  moveAfterMs @1 :UInt32;      # from then on whatever runs is to be moved; before, only what would not end in time
  number @2 :UInt64;           # of the order; reports say which one they know of
}

struct PeerEnded {
  # From the launcher of another engine of this host, which has reaped its process. Over shared memory nobody else would tell: KV that was on its way to or from it ends now.
  engine @0 :Text;
  generation @1 :UInt64;       # this one and all before it
  transferAddress @2 :Data;    # of its KV transport's worker
}

struct Audit {
  # The books against the engine's own truth.
  worker @0 :Text;
  generation @1 :UInt64;
  ledgerTokens @2 :UInt32;     # cells that the pool believes are used
  engineCells @3 :UInt32;      # cells that the engine says are used
  referenced @4 :UInt32;
  jobs @5 :UInt32;
  transfers @6 :UInt32;
  mismatches @7 :List(Text);
  keys @8 :List(import "common.capnp".JobKey);  # jobs that the worker holds, cut to what a message can carry
  keyCount @9 :UInt32;         # how many there are
  earlyOpens @10 :UInt32;      # hand-overs that wait for their decode job
  buffers @11 :UInt32;         # of the KV transport
  buffersFree @12 :UInt32;     # of them
  assemblingBytes @13 :UInt64; # of prompts that come in parts
}
