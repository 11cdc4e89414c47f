# The handshake of a link, and its pulse. Spoken between directly connected processes only: node and node, engine and its own node.
@0xbe658bd6dfa188df;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::msg");

enum ProcessKind { unknown @0; node @1; engine @2; }

struct Hello {
  # The first message in both directions.
  clusterId @0 :Text;
  protocolMin @1 :UInt16;
  protocolMax @2 :UInt16;
  processId @3 :Data;       # 16 bytes, random at each process start: CAF's own node ids can collide
  kind @4 :ProcessKind;
  host @5 :Text;            # name in the cluster file
  engine @6 :Text;          # an engine's directory name; empty for a node
  generation @7 :UInt64;    # an engine's, given by its launcher; 0 for a node
  configGeneration @8 :UInt64;
  unused9 @9 :Data;
  configSections @10 :List(SectionDigest);  # to name the keys that differ
  build @11 :Text;
  secret @12 :Data;         # of this start, for engines; compared in constant time
}

struct SectionDigest { key @0 :Text; digest @1 :UInt64; }

struct Welcome {
  hello @0 :Hello;
  protocol @1 :UInt16;      # the common version, spoken from here on
}

struct Refused { failure @0 :import "common.capnp".Failure; }

struct Ping {
  # Each second, in both directions. `seen` echoes the last sequence number got from the peer, so that a one-way cut shows at both ends.
  sequence @0 :UInt64;
  seen @1 :UInt64;
}

struct Goodbye {
  # An orderly end: the peer is stopping; what it held is over.
  reason @0 :Text;
}
