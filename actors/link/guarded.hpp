#pragma once

#include "actors/link/post_office.hpp"
#include "messages/envelope.hpp"

#include <capnp/schema.h>
#include <kj/exception.h>

#include <type_traits>
#include <utility>

namespace troupe::link {

/// Counts a message that cannot be read, and logs it. Thread-safe.
void note_malformed(const char* schema, const origin& from, const kj::Exception& why);

/// A handler of one schema's messages, guarded at the door: a bad pointer is found, by exception,
/// only when it is followed, maybe in the middle of `handler`. The message is then dropped and
/// counted, and the actor goes on. So whatever a handler does before it has read all that it needs
/// must be harmless on its own.
///
/// `handler` takes `(reader)`, `(origin, reader)`, or `(origin, reader, envelope)` to pass it on.
///
///     return {link::on<msg::CancelJobs>([&s](msg::CancelJobs::Reader in) { s.cancel(in); })};
template <class Schema, class Handler>
auto on(Handler handler) {
  using reader = typename Schema::Reader;
  using envelope = msg::envelope<Schema>;
  return [handler = std::move(handler)](const origin& from, const envelope& e) {
    try {
      msg::view<Schema> in{e};
      if constexpr (std::is_invocable_v<const Handler&, reader>)
        handler(*in);
      else if constexpr (std::is_invocable_v<const Handler&, const origin&, reader>)
        handler(from, *in);
      else
        handler(from, *in, e);
    } catch (const kj::Exception& why) {
      note_malformed(capnp::Schema::from<Schema>().getShortDisplayName().cStr(), from, why);
    }
  };
}

}  // namespace troupe::link
