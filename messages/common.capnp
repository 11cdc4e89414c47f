# Who a job belongs to, and the reasons by which things end. Shared by the other conversations.
@0xcd05ea72d81b6bb2;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::msg");

struct JobKey {
  # Names one attempt at one prompt of one request. A message whose attempt is not the current one is dropped and counted.
  requestHigh @0 :UInt64;  # 128 random bits, also the X-Request-Id's source when the client sent none
  requestLow @1 :UInt64;
  prompt @2 :UInt16;       # index in a list of prompts; 0 for chats
  attempt @3 :UInt32;      # from 1
}

struct Failure {
  # An error in terms that reach the client or the log.
  code @0 :Text;        # stable, snake_case
  message @1 :Text;
  parameter @2 :Text;   # the request's parameter at fault, or empty
  httpStatus @3 :UInt16;
  retryable @4 :Bool;   # another worker may do better
  retryAfterMs @5 :UInt32;
}
