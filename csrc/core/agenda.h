// The agenda: which firings run as one wave, and in which order the waves run.
//
// List scheduling by the critical path. The rank of a firing is the length of the longest chain of
// firings that waits for it; every wave takes the ready firings of greatest rank, of one cell. For
// trees of one cell and waves of a fixed width this gives the fewest waves (Hu, "Parallel
// sequencing and assembly line problems", 1961), so rows are computed in vain only where the
// dependencies force it.
//
// Where it takes long to look which cell comes next, as on an accelerator that its host waits for,
// the waves come in *sweeps*: one of each cell, in order, those of which nothing is ready empty.
#pragma once

#include <cstdint>
#include <vector>

#include "core/array.h"
#include "core/cover.h"
#include "core/program.h"
#include "core/walk.h"

namespace jaxrec {

/// Firings `order[first, first + count)` of a cell run as one wave of width number `width`. Only a
/// wave of a sweep may be empty.
struct AgendaWave {
  int32_t cell;
  int32_t width;
  int32_t first;
  int32_t count;
};

struct Agenda {
  std::vector<int32_t> order;
  std::vector<AgendaWave> waves;
};

/// What waves may be.
struct WaveOptions {
  Span<const int64_t> widths;
  // Of a wave of each width, of all cells alike or of cell after cell. Infinite: never that width.
  Span<const double> costs;
  bool sweeps = false;  // whether they come in sweeps, then of one width
};

/// A pure function of its arguments. Ties are broken by the number of the cell, then of the firing.
Agenda make_agenda(const Program& program, const Values& values, const WaveOptions& options);

}  // namespace jaxrec
