// Writing a schedule into the buffers of a compiled program.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan.h"

namespace jaxrec {

struct FillOptions {
  /// Bounds the value rows, a number a class, where no reader_ptr does; or empty.
  Span<const int64_t> value_capacity;
  /// Without it reader_ptr and reader_idx are left alone, whatever their size.
  bool readers = true;
};

/// The buffers, in order (int32 but for the typed control values):
///   info        [4 + results * (1 + collect) + 2 * classes + cells]: number of waves, calls, collected
///               calls, depth; the read row where each entry result starts; if collected, the same of
///               each collected result; value rows a class; read rows a class; firings a cell
///   waves       [most waves, 3 + max_out + max_in]: kind = cell * widths + width (-1: no wave), count,
///               cell row, value row of each output block, read row of each input block
///   a class     reads [R] (value row of each read row), reader_ptr [V + 1], reader_idx [R]: the read rows
///               of each value row; the last two may have size 0, and are then not wanted
///   a cell      each export [F] in its type, then lane [F]
///   if collect  lane [C], then each control argument [C] in its type
/// Every row space begins and ends with `pad` rows: R, V and F need the rows in use and 2 * pad more.
Status fill(const Schedule& schedule, const std::vector<Array>& buffers, const FillOptions& options = {});

/// Row `number` of `waves`.
void write_wave(const Schedule& schedule, size_t number, int32_t* row);

/// The length of `info`.
int64_t info_size(const Schedule& schedule);

}  // namespace jaxrec
