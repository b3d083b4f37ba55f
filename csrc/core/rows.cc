#include "core/rows.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace jaxrec {
namespace {

Status row_error(int64_t row, int64_t rows) {
  return internal_error("row " + std::to_string(row) + " of a tape of " + std::to_string(rows) +
                        " rows");
}

bool contains(int64_t index, int64_t size) { return 0 <= index && index < size; }

template <class T>
void add(const T* a, const T* b, int64_t size, T* out) {
  for (int64_t e = 0; e < size; ++e) out[e] = a[e] + b[e];
}

}  // namespace

Status gather_rows(const char* tape, int64_t tape_rows, int64_t row_bytes, Span<const int32_t> rows,
                   char* out) {
  for (int32_t row : rows) {
    if (!contains(row, tape_rows)) return row_error(row, tape_rows);
    std::memcpy(out, tape + row * row_bytes, row_bytes);
    out += row_bytes;
  }
  return {};
}

template <class T>
Status sum_rows(const T* tape, int64_t tape_rows, int64_t row_size, Span<const int32_t> readers,
                Span<const int32_t> pointers, T* out) {
  for (size_t i = 0; i + 1 < pointers.size(); ++i, out += row_size) {
    const int64_t begin = pointers[i], end = pointers[i + 1];
    // Rows that no wave wrote have any pointers: their sums are never read.
    if (begin >= end || !contains(begin, readers.size()) ||
        end > static_cast<int64_t>(readers.size())) {
      std::fill_n(out, row_size, T{});
      continue;
    }
    for (int64_t k = begin; k < end; ++k)
      if (!contains(readers[k], tape_rows)) return row_error(readers[k], tape_rows);
    const auto row = [&](int64_t k) { return tape + readers[k] * row_size; };
    if (end - begin == 1) {
      std::copy_n(row(begin), row_size, out);
      continue;
    }
    add(row(begin), row(begin + 1), row_size, out);
    for (int64_t k = begin + 2; k < end; ++k) add(out, row(k), row_size, out);
  }
  return {};
}

template Status sum_rows(const float*, int64_t, int64_t, Span<const int32_t>, Span<const int32_t>,
                         float*);
template Status sum_rows(const double*, int64_t, int64_t, Span<const int32_t>, Span<const int32_t>,
                         double*);

}  // namespace jaxrec
