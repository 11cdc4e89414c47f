# Jobs: from a request actor to workers, and back.
@0x905a14957329937d;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::msg");

using import "common.capnp".JobKey;
using import "common.capnp".Failure;
using import "completion.capnp".Completion;

struct Content {
  # A `Completion` as flat words. Up to 256 KiB inline; what is longer follows in `PromptPart`s, paced by `PartCredit`s.
  bytes @0 :UInt32;            # of the whole
  inline @1 :Data;             # empty when it follows in parts
}

struct WorkerRef {
  name @0 :Text;
  generation @1 :UInt64;
  transferAddress @2 :Data;
  unused3 @3 :Text;
  sameHost @4 :Bool;
}

struct Resume {
  # What earlier attempts gave to the client, so that a later one goes on from there.
  choices @0 :List(Choice);
  struct Choice {
    choice @0 :UInt16;
    ids @1 :List(Int32);       # every token sampled so far, in order
    emittedBytes @2 :UInt32;   # of this choice's text that the client has
    done @3 :Bool;             # finished in an earlier attempt: nothing to do
    unused4 @4 :Text;
  }
}

struct Job {
  # What prefill and decode jobs share.
  key @0 :JobKey;
  replyTo @1 :Text;            # directory name of the request hub
  content @2 :Content;
  chain @3 :List(UInt64);      # byte-block chain of the prompt
  deadlineMs @4 :UInt32;       # left when sent; durations only, clocks of hosts disagree
  leaseMs @5 :UInt32;
  resume @6 :Resume;
  transferToken @7 :Data;      # 16 bytes, one-time, bound to this attempt; guards against mistakes
  priority @8 :UInt8;
  isProbe @9 :Bool;
  alone @10 :Bool;             # under suspicion: runs in steps of its own until it has proved harmless
  prefixScope @11 :UInt64;     # only jobs of the same one find each other's cached prefixes; 0: those of no tenant, or of tenants that share
}

struct PrefillJob {
  job @0 :Job;
  decode @1 :WorkerRef;        # where the KV goes
  unused2 @2 :UInt32;
}

struct DecodeJob {
  job @0 :Job;
  source :union {
    self @1 :Void;             # this worker renders, prefills and decodes
    prefill @2 :WorkerRef;     # KV and tokens come from there; content has no prompt
  }
}

struct PromptPart { key @0 :JobKey; offset @1 :UInt32; bytes @2 :Data; }
struct PartCredit { key @0 :JobKey; received @1 :UInt32; }   # bytes that arrived in order; the sender keeps at most 2 parts ahead

struct CancelJobs { keys @0 :List(JobKey); reason @1 :Text; }
struct RenewLeases { keys @0 :List(JobKey); unused1 @1 :UInt32; }   # one a second from each node to each of its workers

struct Accepted {
  # Before any HTTP header is sent: the prompt is rendered, tokenised and within the limits.
  key @0 :JobKey;
  worker @1 :Text;
  promptTokens @2 :UInt32;
  cachedTokens @3 :UInt32;     # not computed again anywhere
  echoText @4 :Text;           # completions with `echo`
}

struct JobCost {
  # What a job has cost its engine so far, and what was done for it: enough to fit a cost model to. All that a worker tells of one job is its total; a later word takes the place of an earlier one.
  prefillNs @0 :UInt64;        # its share of passes that computed its prompt
  decodeNs @1 :UInt64;         # of those that sampled for it
  transferNs @2 :UInt64;       # the engine's time for its KV that left or came in
  computed @3 :UInt32;         # prompt tokens computed here; those of a recompute, too
  sampled @4 :UInt32;
  computedContext @5 :Float64; # sum of what was before each computed token
  sampledContext @6 :Float64;  # sum of the KV length of each sampled one
  stepShares @7 :Float64;      # decode steps, each divided by the sequences in it
}

struct Rejected { key @0 :JobKey; worker @1 :Text; failure @2 :Failure; }

struct PrefillDone {
  # For the request's timeline.
  key @0 :JobKey;
  worker @1 :Text;
  queueUs @2 :UInt64;
  computeUs @3 :UInt64;
  transferBytes @4 :UInt64;    # payload handed to the transport
  transferUs @5 :UInt64;       # from the first byte sent to the last piece acknowledged
  exposedUs @6 :UInt64;        # of that, after the last chunk was computed: not hidden
  pieces @7 :UInt32;
  fromToken @8 :UInt32;        # transferred [fromToken, toToken)
  toToken @9 :UInt32;
  cachedTokens @10 :UInt32;
  transport @11 :Text;
  cost @12 :JobCost;           # null: not known
  wireUs @13 :UInt64;          # while a piece was under way; 0: not known
}

struct JobFailed {
  key @0 :JobKey;
  worker @1 :Text;
  failure @2 :Failure;
  suspects @3 :UInt32;         # jobs that the engine itself failed in that step, this one among them; 0: it did not
  cost @4 :JobCost;            # null: not known (yet: what a job costs that is ended before its engine has let go follows with `JobDone`)
}

struct TokenBatch {
  # All streams of one node in one engine step.
  worker @0 :Text;
  generation @1 :UInt64;
  unused2 @2 :UInt64;
  streams @3 :List(StreamDelta);
}

enum FinishReason { none @0; stop @1; length @2; toolCalls @3; }

struct StreamDelta {
  key @0 :JobKey;
  choice @1 :UInt16;
  firstIndex @2 :UInt32;       # index of ids[0] in this choice's answer: duplicates are dropped, a gap is an error
  ids @3 :List(Int32);
  text @4 :Text;               # whole UTF-8 characters, nothing that may still become a stop string
  emittedBytes @5 :UInt32;     # of text after this delta
  toolCalls @6 :List(ToolCallDelta);
  logprobs @7 :List(TokenLogprob);
  finish @8 :FinishReason;
  unused9 @9 :Text;
  reasoning @10 :Text;
  cost @11 :JobCost;           # with the end of the last choice; else null, or not known
}

struct ToolCallDelta { index @0 :UInt16; id @1 :Text; name @2 :Text; arguments @3 :Text; }

struct TokenLogprob {
  id @0 :Int32;
  bytes @1 :Data;
  logprob @2 :Float32;
  top @3 :List(Candidate);
  struct Candidate { id @0 :Int32; bytes @1 :Data; logprob @2 :Float32; }
}

struct MoveJob {
  # To the decode worker of a stream that goes on elsewhere: stop at a token boundary, say so by `MoveNotice.moving`, and hand the KV of prompt and answer over, as the prefill leg of the next attempt.
  key @0 :JobKey;              # of the running attempt
  nextAttempt @1 :UInt32;      # the job's attempt from the notice on
  decode @2 :WorkerRef;        # where the KV goes
  transferToken @3 :Data;
}

struct MoveNotice {
  # From a decode worker to the request hub. Also the answer to `MoveJob`.
  key @0 :JobKey;              # of the attempt that samples, or did until now
  worker @1 :Text;
  union {
    wanted @2 :Void;           # this worker drains: move the stream if there is a place for it; it goes on meanwhile
    moving @3 :UInt32;         # it has stopped, all its tokens were sent before this; the job now has this attempt
    refused @4 :Failure;       # it goes on here, or is over
  }
}

struct JobDone {
  # Every choice has finished and the worker holds nothing more for this job. Also of a job that was cancelled or failed before, once its engine has let go, to tell what it has cost.
  key @0 :JobKey;
  worker @1 :Text;
  unused2 @2 :UInt32;
  unused3 @3 :UInt64;
  cost @4 :JobCost;            # null: not known
}
