#pragma once

// All conversations. Include a single generated header instead where one is enough.
#include "messages/budget.capnp.h"
#include "messages/common.capnp.h"
#include "messages/completion.capnp.h"
#include "messages/console.capnp.h"
#include "messages/control.capnp.h"
#include "messages/directory.capnp.h"
#include "messages/drain.capnp.h"
#include "messages/engine.capnp.h"
#include "messages/job.capnp.h"
#include "messages/link.capnp.h"
#include "messages/route.capnp.h"
#include "messages/suspects.capnp.h"
#include "messages/transfer.capnp.h"

/// Every schema that actors send as an envelope: X(Schema). The type-ID block and the parcel
/// registry are made from this list; append only, since a type ID follows from the position.
#define TROUPE_ENVELOPE_SCHEMAS(X)                                                                 \
  X(Hello)                                                                                         \
  X(Welcome)                                                                                       \
  X(Refused)                                                                                       \
  X(Ping)                                                                                          \
  X(Goodbye)                                                                                       \
  X(DirectoryUpdate)                                                                               \
  X(PrefillJob)                                                                                    \
  X(DecodeJob)                                                                                     \
  X(PromptPart)                                                                                    \
  X(PartCredit)                                                                                    \
  X(CancelJobs)                                                                                    \
  X(RenewLeases)                                                                                   \
  X(Accepted)                                                                                      \
  X(Rejected)                                                                                      \
  X(PrefillDone)                                                                                   \
  X(JobFailed)                                                                                     \
  X(TokenBatch)                                                                                    \
  X(JobDone)                                                                                       \
  X(RouteRequest)                                                                                  \
  X(Route)                                                                                         \
  X(RouteRefused)                                                                                  \
  X(RouteRelease)                                                                                  \
  X(WorkerReport)                                                                                  \
  X(PrefixEvents)                                                                                  \
  X(PrefixResync)                                                                                  \
  X(EngineStatus)                                                                                  \
  X(EngineCommand)                                                                                 \
  X(Audit)                                                                                         \
  X(CrashSuspects)                                                                                 \
  X(PoisonNotice)                                                                                  \
  X(DrainOrder)                                                                                    \
  X(DrainStatus)                                                                                   \
  X(MoveJob)                                                                                       \
  X(MoveNotice)                                                                                    \
  X(ConsoleRequest)                                                                                \
  X(ConsoleReply)                                                                                  \
  X(NodeQuery)                                                                                     \
  X(NodeReport)                                                                                    \
  X(BudgetWords)                                                                                   \
  X(BudgetAnswers)                                                                                 \
  X(Assignment)                                                                                    \
  X(ShardLoad)                                                                                     \
  X(ShardState)
