// Comes first in what clang-tidy reads. Cap'n Proto 0.9 compares `const char*` with `kj::StringPtr`
// by operators that C++20 turns round, which compilers since clang 16 no longer do (P2468); the
// compilers that build Troupe still do.
#pragma once
#include <kj/string.h>

namespace kj {
inline bool operator==(const char* a, const StringPtr& b) { return b == StringPtr(a); }
inline bool operator!=(const char* a, const StringPtr& b) { return !(b == StringPtr(a)); }
}  // namespace kj
