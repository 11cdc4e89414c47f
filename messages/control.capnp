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
