#pragma once

#include <cstddef>

namespace jaxrec {

/// Asks the system to back large memory that is not yet written with large pages.
///
/// A tape is fresh memory in every step, and the first write to each of its pages is a fault: with
/// small pages these faults cost as much as the arithmetic on what is written. The contents do not
/// change. Small buffers, and systems without such a request, are left alone.
void use_large_pages(void* data, size_t bytes);

}  // namespace jaxrec
