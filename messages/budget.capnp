# Tenants' limits over several gateways: between the request hub of each gateway, which holds slices of budgets, and the `budgets/<host>` actor that owns them. No clocks: durations only.
@0x9d6e2b40c7a1f853;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::msg");

struct BudgetWords {
  # To an owner, twice a second at least, and when a slice is needed. An answer comes for each, by `BudgetAnswers`.
  words @0 :List(HolderWord);
}

struct HolderWord {
  budget @0 :Text;             # `tenant/model`
  incarnation @1 :UInt64;      # of the holder; larger is newer
  sequence @2 :UInt64;         # comes back in the answer
  echo @3 :UInt64;             # newest word of this owner that was heard; 0: none
  held @4 :Float64;            # model units that are not spent
  returned @5 :Float64;        # that are given back with this
  need @6 :Float64;            # that the next request lacks; 0: nobody waits
  prefetch @7 :Float64;        # that it would like on top
  open @8 :UInt32;             # requests that run
  wantOpen @9 :UInt32;         # that it would like to run
  openAllowed @10 :UInt32;     # that it may run, as it knows
}

struct BudgetAnswers { answers @0 :List(OwnerWord); }

struct OwnerWord {
  budget @0 :Text;
  incarnation @1 :UInt64;      # of the owner; larger is newer
  sequence @2 :UInt64;
  answers @3 :UInt64;          # the holder's sequence
  rules @4 :Bool;              # enough holders follow this owner: else nothing below holds
  grant @5 :Float64;           # model units, to be used within the lease that the holder's word began
  waitMs @6 :UInt32;           # until the need can be met
  scarce @7 :Bool;             # others wait: what is not needed should come back
  level @8 :Float64;           # model units that are left, less what others wait for
  openAllowed @9 :UInt32;
}
