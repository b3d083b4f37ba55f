// The agenda: which firings run as one wave, and in which order the waves run.
//
// List scheduling by the critical path. The rank of a firing is the length of the longest chain of
// firings that waits for it; every wave takes the ready firings of greatest rank, of one cell. For
// trees of one cell and waves of a fixed width this gives the fewest waves (Hu, "Parallel
// sequencing and assembly line problems", 1961), so rows are computed in vain only where the
// dependencies force it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/array.h"
#include "core/cover.h"
#include "core/program.h"
#include "core/walk.h"

namespace jaxrec {

/// Firings `order[first, first + count)` run as one wave of width number `width`.
struct AgendaWave {
  int32_t width;
  int32_t first;
  int32_t count;
};

struct Agenda {
  std::vector<int32_t> order;
  std::vector<AgendaWave> waves;
};

/// `costs` are those of a wave of each width, of all cells alike, or of cell after cell.
/// A pure function of its arguments. Ties are broken by the number of the cell, then of the firing.
Agenda make_agenda(const Program& program, const Values& values, Span<const int64_t> widths,
                   Span<const double> costs);

}  // namespace jaxrec
