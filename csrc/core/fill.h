// Writing a schedule into the buffers of a compiled program.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan.h"

namespace jaxrec {

struct FillOptions {
  /// Bounds the value rows and then the read rows, a number a class each; or empty.
  Span<const int64_t> capacity;
  /// Without it the reader tables are left alone, whatever their size.
  bool readers = true;
  /// If it is not null: how many elements of each buffer, from its first, belong to the schedule.
  std::vector<int64_t>* written = nullptr;
  /// Without it all is left alone, whatever its size, but what tells the results: `info`, their
  /// value rows, and what belongs to collected calls.
  bool waves = true;
};

/// The buffers, in order (int32 but for the typed control values):
// clang-format off
///   info         [kInfoHead + results * (1 + collect) + cells]: number of waves, calls, collected calls;
///                the read row where each entry result starts; if collected, the same of each
///                collected result; firings a cell
///   waves        [most waves, kWaveHead + max_out + max_in]: kind = cell * widths + width, count, cell row,
///                value row of each output block, read row of each input block
///   a cell       for each input reads [F]: the value row that each cell row reads; for each output
///                readers [F + 1]: where each cell row's readers start in reader_rows of the
///                output's class; each export [F] in its type; lane [F]
///   a root data argument   readers [L + 1], by lane
///   an entry result        the value row [L], by lane; then, if collected, another [C] each, by call
///   a class      reader_rows [R]: the read rows of each value, ascending
///   if collect   lane [C], then each control argument [C] in its type
// clang-format on
/// Every row space begins and ends with `pad` rows: R and F need the rows in use and 2 * pad more.
/// The tables are by cell row, since the rows of a cell are contiguous and those of a class are
/// not. Rows behind those that are needed are left alone: touching memory that was never used takes
/// longer than the schedule does where there is room for many more calls than are made.
Status fill(const Schedule& schedule, const std::vector<Array>& buffers,
            const FillOptions& options = {});

/// Row `number` of `waves`.
void write_wave(const Schedule& schedule, size_t number, int32_t* row);

/// The length of `info`.
int64_t info_size(const Schedule& schedule);

}  // namespace jaxrec
