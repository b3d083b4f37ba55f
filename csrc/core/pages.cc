#include "core/pages.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <cstdint>

namespace jaxrec {

#if defined(__linux__) && defined(MADV_HUGEPAGE)

void use_large_pages(void* data, size_t bytes) {
  constexpr size_t kWorthwhile = size_t{1} << 18;
  constexpr uintptr_t kLarge = uintptr_t{1} << 21;
  if (bytes < kWorthwhile) return;
  // The large pages that hold the buffer, with what lies beside it: the request is about pages, and
  // says nothing of their contents. One that is refused changes nothing but the speed.
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data), end = begin + bytes;
  const uintptr_t first = begin & ~(kLarge - 1), last = (end + kLarge - 1) & ~(kLarge - 1);
  madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}

#else

void use_large_pages(void*, size_t) {}

#endif

}  // namespace jaxrec
