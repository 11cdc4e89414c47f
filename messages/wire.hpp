#pragma once

// How CAF carries frozen messages, envelopes and parcels: `inspect` overloads and type IDs. No
// actor headers here.

#include "messages/parcel.hpp"
#include "messages/schemas.hpp"

#include <caf/deserializer.hpp>
#include <caf/error.hpp>
#include <caf/meta/type_name.hpp>
#include <caf/sec.hpp>
#include <caf/serializer.hpp>
#include <caf/type_id.hpp>

#include <cstdint>
#include <string>
#include <type_traits>

namespace troupe::msg {

/// Writes count, sizes and segments straight from the message's memory: one copy, into BASP's
/// buffer.
caf::error save(caf::serializer& sink, const frozen_message& x);

/// Checks count and sizes before it allocates, then reads each segment into aligned words. Errors:
/// `caf::sec::invalid_argument`, naming the reason.
caf::error load(caf::deserializer& source, frozen_message& x);

/// For CAF's printing inspectors: type and size, never contents (prompts are private).
std::string describe(const frozen_message& x);

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, frozen_message& x) {
  if constexpr (std::is_base_of_v<caf::serializer, Inspector>) {
    return save(f, x);
  } else if constexpr (std::is_base_of_v<caf::deserializer, Inspector>) {
    return load(f, x);
  } else {
    auto text = describe(x);
    return f(caf::meta::type_name("frozen_message"), text);
  }
}

template <class Inspector, class Schema>
typename Inspector::result_type inspect(Inspector& f, envelope<Schema>& x) {
  return inspect(f, x.body);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, address& x) {
  return f(caf::meta::type_name("address"), x.name, x.generation);
}

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, parcel& x) {
  return f(caf::meta::type_name("parcel"), x.to, x.from, x.schema, x.body);
}

}  // namespace troupe::msg

CAF_BEGIN_TYPE_ID_BLOCK(troupe_messages, caf::first_custom_type_id)

CAF_ADD_TYPE_ID(troupe_messages, (troupe::msg::frozen_message))
CAF_ADD_TYPE_ID(troupe_messages, (troupe::msg::address))
CAF_ADD_TYPE_ID(troupe_messages, (troupe::msg::parcel))
#define TROUPE_ADD(Schema)                                                                         \
  CAF_ADD_TYPE_ID(troupe_messages, (troupe::msg::envelope<troupe::msg::Schema>))
TROUPE_ENVELOPE_SCHEMAS(TROUPE_ADD)
#undef TROUPE_ADD

CAF_END_TYPE_ID_BLOCK(troupe_messages)
