// How large the largest tests are.
#pragma once

#include <cstdint>

namespace jaxrec {

/// Whether a sanitizer watches: then all is about ten times as slow, and more of it in memory.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// A depth of calls that no thread's own stack would hold.
inline constexpr int32_t kLongChain = kSanitized ? 100'000 : 1'000'000;

}  // namespace jaxrec
