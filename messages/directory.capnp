# Which actors exist, where, and in which state: each node is the only authority for its own, and replicates them to its peers as a versioned set.
@0xbcfffaaf52123abb;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::msg");

enum Role { none @0; prefill @1; decode @2; both @3; router @4; requests @5; gateway @6; launcher @7; console @8; drain @9; budgets @10; control @11; }

enum EntryState { unknown @0; starting @1; loading @2; ready @3; draining @4; failed @5; stopped @6; }

struct Entry {
  name @0 :Text;              # `decode/llama/h2.0`
  generation @1 :UInt64;      # of the actor's process or of its restart; larger is newer
  role @2 :Role;
  state @3 :EntryState;
  pool @4 :Text;
  model @5 :Text;
  host @6 :Text;
  transferAddress @7 :Data;   # of the KV transport's worker; empty without one
  transferKind @8 :Text;      # "ucx", "host"
  slots @9 :UInt32;           # requests that run at once
  kvTokens @10 :UInt32;       # KV budget
  kvBytesPerToken @11 :UInt32;
  contextTokens @12 :UInt32;
  processId @13 :Data;
  detail @14 :Text;           # why it failed, how far loading is
  slow @15 :Text;             # evidence that it is far slower than usual: others are preferred; empty: it is not
  deviceClass @16 :Text;      # what computes: the same words mean the same speed; empty: not known
  prefillSpeed @17 :Float32;  # tokens a second, as measured when it was loaded; 0: not known
  decodeSpeed @18 :Float32;   # of one stream
}

struct DirectoryUpdate {
  # The whole set of one node. Small (tens of entries), so that there is nothing to resynchronise; a version not above the last is dropped.
  host @0 :Text;
  processId @1 :Data;
  version @2 :UInt64;
  entries @3 :List(Entry);
}
