# The hand-over of KV between two workers, spoken over the KV transport's own control channel (not over links).
@0xe5a576a056e070ec;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::msg");

using import "common.capnp".JobKey;
using import "common.capnp".Failure;
using import "completion.capnp".OutputPlan;

struct HandOver {
  # One struct, so that the receiver reads the kind once.
  key @0 :JobKey;
  token @1 :Data;              # the job's one-time token: it came to each side in a job that was addressed to one incarnation of one worker, so that it fences generations, too
  union {
    open @2 :Open;             # prefill → decode
    grant @3 :Grant;           # decode → prefill
    refuse @4 :Failure;        # decode → prefill
    credit @5 :UInt32;         # decode → prefill: so many more bytes may be sent
    end @6 :End;               # prefill → decode: no more pieces follow
    adopted @7 :Void;          # decode → prefill: all is in place, the reservation is now the request's
    abort @8 :Failure;         # either way
    queued @9 :Void;           # decode → prefill: the open is here, its job waits for room; repeated until the grant, so that only silence is a failure
  }
}

struct Open {
  tokens @0 :List(Int32);      # of the whole prompt
  kvUntil @1 :UInt32;          # KV of positions [0, kvUntil) is offered; the rest is decode's to compute
  bytesPerToken @2 :UInt32;
  layout @3 :UInt64;           # digest of the KV layout: model file, types, layers; both must agree
  outputPlan @4 :OutputPlan;
  unused5 @5 :UInt32;
  unused6 @6 :UInt64;
  answerTokens @7 :UInt32;     # so many of the last tokens are the answer so far: a running stream moves
}

struct Grant {
  keep @0 :UInt32;             # decode holds [0, keep) already, token by token; send [keep, kvUntil)
  keepDigest @1 :UInt64;       # XXH3 of those tokens; prefill checks it against its own
  creditBytes @2 :UInt32;
  unused3 @3 :UInt64;
}

struct End { pieces @0 :UInt32; bytes @1 :UInt64; }
