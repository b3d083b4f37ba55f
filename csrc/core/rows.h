// Moving rows of tapes: the memory traffic between waves.
#pragma once

#include <cstdint>

#include "core/array.h"
#include "core/status.h"

namespace jaxrec {

/// out[i] = tape[rows[i]], for rows of any type: `row_bytes` each.
Status gather_rows(const char* tape, int64_t tape_rows, int64_t row_bytes, Span<const int32_t> rows,
                   char* out);

/// out[i] = the sum of tape[readers[k]] over k in [pointers[i], pointers[i + 1]), in this order;
/// zero where the range is empty. Rows have `row_size` elements; `out` has one row less than
/// pointers.
template <class T>
Status sum_rows(const T* tape, int64_t tape_rows, int64_t row_size, Span<const int32_t> readers,
                Span<const int32_t> pointers, T* out);

}  // namespace jaxrec
