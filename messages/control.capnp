# Who of the router shards has which keys: from the control host to all nodes, and from shards back what load there is.
@0xd2a8c5f1b7e94c36;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::msg");

struct Assignment {
  # Newer is what has the higher term, then the higher generation. A node refuses lower terms than it has seen.
  term @0 :UInt64;
  generation @1 :UInt64;
  shards @2 :List(Text);        # directory names, `router/<n>`
  slices @3 :List(Slice);       # in order, the first from key 0; each goes up to the next

  struct Slice {
    first @0 :UInt64;
    replicas @1 :List(UInt16);  # places in `shards`, ascending, at least one
  }
}

struct ShardLoad {
  # A shard's own account, to the actor `control`. Nobody answers it.
  shard @0 :Text;               # directory name
  shardGeneration @1 :UInt64;   # of its incarnation: counters and loads of an older one are over
  term @2 :UInt64;              # of the assignment that it goes by
  generation @3 :UInt64;        # the same
  ranges @4 :List(Range);       # that it has served lately: its slices, and where it was asked for others'
  keys @5 :List(Key);           # that stand out, at most 64; their loads are in their ranges', too
  requests @6 :UInt64;          # decisions, since its incarnation began
  misrouted @7 :UInt64;         # of those, for keys that are not its own by its assignment
  blocks @8 :UInt64;            # that its index knows of
  sessions @9 :UInt32;          # that it remembers
  leases @10 :UInt32;           # that are open
  requestsPerSecond @11 :Float64;  # averaged as the loads

  # Loads are seconds of engine time for each second, granted by leases: prefill and decode, averaged over a decaying window of a minute.
  struct Range { first @0 :UInt64; last @1 :UInt64; load @2 :Float64; }
  struct Key { key @0 :UInt64; load @1 :Float64; }
}

struct ShardState {
  # From a shard that loses keys to the one that has them now: what it knows of their sessions. Several messages, each whole by itself: what is lost costs a choice of worker, no more.
  fromShard @0 :Text;           # directory name
  fromGeneration @1 :UInt64;    # of its incarnation
  term @2 :UInt64;              # of the assignment by which the keys move
  generation @3 :UInt64;        # the same
  workers @4 :List(Text);       # that the sessions were served by
  sessions @5 :List(Session);   # the longest quiet one first: the last is the latest

  struct Session {
    key @0 :UInt64;             # in the space of shards
    session @1 :UInt64;         # hash of its model and name, as the shard's book knows it
    prefill @2 :UInt16 = 65535; # place in `workers`; 65535: decode did all
    decode @3 :UInt16;          # place in `workers`
  }
}
