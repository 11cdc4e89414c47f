# Who may have crashed an engine: from the launcher that saw it end to all request hubs, and among those.
@0xa3c1d7e59b2f4c60;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::msg");

using import "common.capnp".JobKey;

struct CrashSuspects {
  # An engine's process has crashed by itself. Each hub heeds the keys of its own requests.
  engine @0 :Text;
  generation @1 :UInt64;
  keys @2 :List(JobKey);       # what was at hand; at most 256 of them are named
  suspects @3 :UInt32;         # how many there were in all
  reason @4 :Text;             # how the process ended
}

struct PoisonNotice {
  # A request was alone in an engine that crashed. The same content is refused for a while.
  fingerprint @0 :UInt64;
  forMs @1 :UInt32;
}
