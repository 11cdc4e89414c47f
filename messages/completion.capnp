# One completion as the client asked for it, after the gateway's checks: what an engine needs to render, sample and parse it.
@0x9a56342943642c96;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::msg");

struct Completion {
  # Travels as a flat array of words inside jobs (`content`), in parts when it is large; never an envelope of its own.
  model @0 :Text;
  prompt :union {
    none @1 :Void;             # a decode job whose prompt arrives with the KV
    messages @2 :List(Message);
    text @3 :Text;
    tokens @4 :List(Int32);
  }
  choices @5 :UInt16 = 1;      # `n`
  maxTokens @6 :UInt32;        # 0: as many as the context holds
  sampling @7 :Sampling;
  stop @8 :List(Text);
  logprobs @9 :Bool;
  topLogprobs @10 :UInt8;
  responseFormat :union {
    text @11 :Void;
    jsonObject @12 :Void;
    jsonSchema @13 :Text;      # the schema itself, as JSON
  }
  toolsJson @14 :Text;         # the `tools` array as JSON, in the client's order; empty: none
  toolChoice @15 :ToolChoice;
  toolName @16 :Text;          # with `function`
  parallelToolCalls @17 :Bool = true;
  echo @18 :Bool;
  isChat @19 :Bool;
  ignoreEos @20 :Bool;         # benchmarks: run to maxTokens
  chatTemplateKwargsJson @21 :Text;
}

enum ToolChoice { auto @0; none @1; required @2; function @3; }

struct Message {
  role @0 :Text;               # system, developer, user, assistant, tool
  content @1 :Text;            # text parts joined in order; none: null
  name @2 :Text;
  toolCallId @3 :Text;
  toolCallsJson @4 :Text;      # an assistant's `tool_calls` as JSON; empty: none
  unused5 @5 :Bool;
}

struct Sampling {
  temperature @0 :Float32 = 1;
  topP @1 :Float32 = 1;
  topK @2 :Int32;              # 0: off
  minP @3 :Float32;
  seed @4 :UInt64;             # always set: drawn by the gateway when the client gave none, so that a failover repeats the draws
  presencePenalty @5 :Float32;
  frequencyPenalty @6 :Float32;
  logitBias @7 :List(LogitBias);
}

struct LogitBias { token @0 :Int32; bias @1 :Float32; }

struct OutputPlan {
  # What rendering found out about how to constrain and to parse the answer. Made by whoever renders, needed by whoever samples.
  grammar @0 :Text;            # GBNF; empty: none
  grammarLazy @1 :Bool;        # starts at a trigger
  grammarTriggersJson @2 :Text;
  preservedTokens @3 :List(Int32);
  parserJson @4 :Text;         # what the tool-call parser needs, opaque here
  stops @5 :List(Text);        # the template's own, beside the client's
  generationPrompt @6 :Text;
}
