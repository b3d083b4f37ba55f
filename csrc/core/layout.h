// Waves, and the row of everything they read and write.
#pragma once

#include <cstdint>
#include <vector>

#include "core/agenda.h"
#include "core/status.h"
#include "core/walk.h"

namespace jaxrec {

/// Firings of one cell that run as one batch: `Layout::order[first, first + count)`.
struct Wave {
  int32_t cell;
  int32_t width;     // number of the width it is computed at
  int32_t count;     // 0: of a sweep, and nothing of the cell is ready
  int32_t cell_row;  // of its first firing among its cell's
  int32_t first;
};

/// What a row of the table of waves begins with: kind (a cell at a width), count and cell row.
constexpr int64_t kWaveHead = 3;
/// And what the counters begin with: waves, calls and collected calls.
constexpr int64_t kInfoHead = 3;

/// Waves in the order of the agenda. Rows begin at `pad`, the greatest width, in
/// every row space: what a wave computes beyond its count then stays inside.
struct Layout {
  int32_t pad = 0;
  int32_t lanes = 0;
  int32_t max_in = 0, max_out = 0;  // input and output slots of any cell
  std::vector<int32_t> order;       // firings, wave by wave
  std::vector<Wave> waves;
  std::vector<int32_t> out_starts;     // [waves, max_out]: value row of each output block
  std::vector<int32_t> in_starts;      // [waves, max_in]: read row of each input block
  std::vector<int32_t> root_starts;    // value row of each root data argument's block
  std::vector<int32_t> result_starts;  // read row of each entry result's block, a row a lane
  std::vector<int32_t>
      collect_starts;                // and, if collected, of a block with a row a collected frame
  std::vector<int32_t> collected;    // the entry function's frames
  std::vector<int32_t> output_rows;  // value row of each output
  std::vector<int32_t> value_rows, read_rows;  // rows in use, a class
  std::vector<int32_t> cell_rows;              // firings, a cell

  /// The value row that holds a value.
  int32_t row(ValueId value) const {
    if (value >= 0) return output_rows[value];
    return root_starts[~value / lanes] + ~value % lanes;
  }
};

struct LayoutOptions {
  WaveOptions of_waves;
  bool collect = false;
  bool waves = true;               // else only what does not depend on them
  const Agenda* agenda = nullptr;  // waves that have run already; else they are chosen here
};

Status lay_out(const Program& program, const FrameTable& frames, const Values& values,
               const LayoutOptions& options, Layout& out);

}  // namespace jaxrec
