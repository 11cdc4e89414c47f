# Taking engines out of service and back: from the `drain/<host>` actor of any node to the launchers of the engines, and their answers.
@0xb1fd64e6f4b5d3c7;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::msg");

using import "common.capnp".Failure;

enum DrainEnd {
  keep @0;                     # it stays loaded, and takes nothing until it is undrained
  stop @1;                     # its process ends; undrain starts it again
  restart @2;                  # its process is replaced, and takes jobs again
}

struct DrainOrder {
  # To `launcher/<pool>/<host>.<index>`. A later order replaces an earlier one, whose orderer is told: refused, with the code `replaced`.
  id @0 :UInt64;               # the orderer's, comes back in every status
  replyTo @1 :Text;            # directory name that gets `DrainStatus`
  union {
    drain @2 :Drain;
    undrain @3 :Void;
  }
}

struct Drain {
  withinMs @0 :UInt32;         # what still runs then ends here, and goes on elsewhere
  moveAfterMs @1 :UInt32;      # from then on whatever runs is moved; before, only streams that would not end in time
  then @2 :DrainEnd;
}

enum DrainPhase {
  refused @0;                  # with a failure
  draining @1;
  drained @2;                  # it holds nothing any more
  stopped @3;
  restarting @4;
  serving @5;                  # it takes jobs (again)
}

struct DrainStatus {
  # The acknowledgement at once, then at every change until the order is carried out.
  id @0 :UInt64;
  engine @1 :Text;
  generation @2 :UInt64;
  phase @3 :DrainPhase;
  jobsLeft @4 :UInt32;
  over @5 :Bool;               # nothing more follows
  failure @6 :Failure;
}
