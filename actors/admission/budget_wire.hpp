#pragma once

#include "actors/admission/budget.hpp"
#include "messages/budget.capnp.h"

namespace troupe::admission {

// Words about budgets on the wire. What is no number there, or below 0, becomes 0.

void write(msg::HolderWord::Builder out, const holder_word& in);
holder_word read(msg::HolderWord::Reader in);
void write(msg::OwnerWord::Builder out, const owner_word& in);
owner_word read(msg::OwnerWord::Reader in);

}  // namespace troupe::admission
