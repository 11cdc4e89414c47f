# An admin console and the cluster: what a person asks, what each node answers. ConsoleRequest and ConsoleReply travel in frames between a terminal and its session; NodeQuery and NodeReport between
# sessions and the nodes' inspectors.
@0xb1d6d2f0c7a94e35;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::msg");

using import "common.capnp".JobKey;
using import "common.capnp".Failure;
using import "control.capnp".ShardLoad;
using import "directory.capnp".Entry;
using import "engine.capnp".Audit;

struct ConsoleRequest {
  id @0 :UInt32;               # comes back in each reply; one at a time is worked at
  protocol @1 :UInt16;
  hosts @2 :List(Text);        # whom to ask; empty: every host of the cluster
  query @3 :NodeQuery;         # its id is the session's to give
  order @4 :ConsoleOrder;      # instead of a query
}

struct ConsoleOrder {
  # Carried out by the drain actor of the session's node, whatever becomes of the session.
  kind @0 :TargetKind;
  target @1 :Text;
  atOnce @2 :UInt32;           # engines at a time; 0: all
  union {
    none @3 :Void;
    drain @4 :import "drain.capnp".Drain;
    undrain @5 :Void;
  }
  enum TargetKind { engine @0; pool @1; host @2; }
}

struct ConsoleReply {
  id @0 :UInt32;
  union {
    report @1 :NodeReport;     # one for each host that answered
    end @2 :List(Silent);      # nothing more comes
    failure @3 :Failure;       # the request cannot be served at all
    progress @4 :List(OrderProgress);  # of an order: at each change, and now and then
  }
  struct Silent { host @0 :Text; reason @1 :Text; }
  struct OrderProgress {
    engine @0 :Text;
    phase @1 :Text;            # waiting, ordered, or as its launcher says
    jobsLeft @2 :UInt32;
    over @3 :Bool;
    failure @4 :Text;
  }
}

struct NodeQuery {
  id @0 :UInt64;
  union {
    none @1 :Void;
    tree @2 :Void;
    directory @3 :Void;
    workers @4 :Void;
    health @5 :Void;
    requests @6 :Void;
    timeline @7 :Text;         # of the request with this external id
    books @8 :Void;
    reload @9 :Reload;         # operators only
    shards @10 :Void;
  }
}

struct Reload {
  # The node reads its own cluster file again, and takes over what can be: tenants, their keys and limits. All or nothing.
  apply @0 :Bool;              # else it only says whether it could
  digest @1 :Text;             # the file has to be the one with this digest; empty: whatever is there
}

struct Reloaded {
  applied @0 :Bool;
  generation @1 :UInt64;       # of what the node goes by now
  digest @2 :Text;             # the same
  fileDigest @3 :Text;         # of its file; empty: that has problems
  problems @4 :List(Text);     # why it is not taken over, each with its place; none: it is, or could be
}

struct NodeReport {
  id @0 :UInt64;
  host @1 :Text;
  union {
    none @2 :Void;
    tree @3 :List(TreeNode);
    directory @4 :List(Entry);
    workersJson @5 :Text;
    health @6 :List(EngineHealth);
    requests @7 :List(OpenRequest);
    timelineJson @8 :Text;     # empty: not known here
    books @9 :Books;
    failure @10 :Failure;
    reloaded @11 :Reloaded;
    shards @12 :Shards;
  }
}

struct TreeNode {
  name @0 :Text;
  state @1 :Text;              # running, stopping, waiting, ended
  generation @2 :UInt64;
  restarts @3 :UInt32;
  lastEnd @4 :Text;            # why the last incarnation ended
  mailbox @5 :Int64 = -1;      # messages that wait, as the actor itself counted them; -1: it did not say
  silent @6 :Text;             # why it did not say
  facts @7 :List(Fact);
  children @8 :List(TreeNode);
  struct Fact { key @0 :Text; value @1 :Text; }
}

struct EngineHealth {
  engine @0 :Text;
  generation @1 :UInt64;
  verdict @2 :Text;            # healthy, slow, hung, broken
  evidence @3 :Text;
  steps @4 :UInt64;
  ticks @5 :UInt64;
  tokens @6 :UInt64;
  jobs @7 :UInt32;
  sinceMs @8 :UInt64;          # its last account came so long ago
  probesSent @9 :UInt64;
  probesAnswered @10 :UInt64;
}

struct OpenRequest {
  externalId @0 :Text;
  model @1 :Text;
  ageMs @2 :UInt64;
  promptBytes @3 :UInt64;
  key @4 :JobKey;              # of the request; no prompt or attempt
}

struct Books {
  # Who holds what at one host. Lists are cut to what a message can carry; the counts are whole.
  hub @0 :Hub;
  router @1 :Router;
  engines @2 :List(Audit);     # an engine's own account
  silent @3 :List(Text);       # actors here that did not answer in time: their part is not in it

  struct Hub {
    present @0 :Bool;
    generation @1 :UInt64;
    requests @2 :List(JobKey);
    requestCount @3 :UInt32;
    jobs @4 :List(HeldJob);
    jobCount @5 :UInt32;
    leases @6 :List(UInt64);
    leaseCount @7 :UInt32;
    ticketCount @8 :UInt32;    # open requests as admission counts them
    promptBytes @9 :UInt64;
    leaseShards @10 :List(Text); # who granted them
  }
  struct HeldJob { worker @0 :Text; generation @1 :UInt64; key @2 :JobKey; }
  struct Router {
    present @0 :Bool;
    leases @1 :List(Lease);
    leaseCount @2 :UInt32;
    shards @3 :List(Text);     # that run here
  }
  struct Lease {
    id @0 :UInt64;
    host @1 :Text;
    incarnation @2 :UInt64;
    prefill @3 :Text;          # empty: none, or its share is done
    decode @4 :Text;
    tokens @5 :UInt64;
    shard @6 :Text;            # that granted it
  }
}

struct Shards {
  # What one host knows of the router shards.
  term @0 :UInt64;             # of the assignment that this host's requests go by
  generation @1 :UInt64;       # the same
  assigned @2 :List(Assigned); # by it, in its order
  here @3 :List(ShardLoad);    # of the shards that run here, as they say themselves
  control @4 :Control;
  silent @5 :List(Text);       # actors here that did not answer in time

  struct Assigned {
    shard @0 :Text;
    slices @1 :UInt32;
    part @2 :Float64;          # of the key space; of a slice with several shards each has its part
  }
  struct Control {
    present @0 :Bool;          # the control host's actor runs here
    term @1 :UInt64;           # of the assignment that it last made
    generation @2 :UInt64;     # the same
    madeMs @3 :Int64 = -1;     # so long ago; -1: not since it began
    imbalance @4 :Float64;     # hottest shard's load over the mean, as that assignment shares it out; 0: not known
    churn @5 :Float64;         # part of the key space that it moved between shards that live
    lost @6 :List(Text);       # shards that it counts out
    problem @7 :Text;          # why it changes nothing, or not all; empty: nothing is wrong
  }
}
