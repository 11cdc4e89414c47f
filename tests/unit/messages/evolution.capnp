@0xd3b8a3d0f1c2a955;

# `PromptPart` as a later version could have it: fields added at the end, one in a nested struct. The test reads each with the other's eyes.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::test");

struct NewerKey {
  requestHigh @0 :UInt64;
  requestLow @1 :UInt64;
  prompt @2 :UInt16;
  attempt @3 :UInt32;
  epoch @4 :UInt64 = 17;
}

struct NewerPromptPart {
  key @0 :NewerKey;
  offset @1 :UInt32;
  bytes @2 :Data;
  checksum @3 :UInt64;
  origin @4 :Text;
}

struct OlderJobDone {
  # `JobDone` of a build whose workers tell no costs.
  key @0 :NewerKey;
  worker @1 :Text;
  unused2 @2 :UInt32;
  unused3 @3 :UInt64;
}
