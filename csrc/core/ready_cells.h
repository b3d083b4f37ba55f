// The firings of a stepped program that are ready, by cell, and which cell runs next.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "core/program.h"

namespace jaxrec {

/// Source: Neubig et al., "On-the-fly operation batching in dynamic computation graphs" (2017),
/// section 3, for the order by average depth.
class ReadyCells {
 public:
  explicit ReadyCells(const Program& program);

  /// Says that a firing of a cell will become ready.
  void expect(int32_t cell) { ++cells_[cell].unfired; }

  /// Adds a firing of a frame at a depth.
  void add(int32_t cell, int32_t firing, int32_t depth) {
    cells_[cell].firings.push_back(firing);
    cells_[cell].depths += depth;
  }

  /// The firings of a cell, in the order in which they became ready.
  const std::deque<int32_t>& of(int32_t cell) const { return cells_[cell].firings; }

  /// Takes the first firing of a cell out, given the depth of its frame.
  int32_t take(int32_t cell, int32_t depth);

  /// The cell to run next, or -1 if no firing is ready. While frames wait: what control may read,
  /// the shallowest first, so that calls at one depth meet in one wave. When all calls are made:
  /// cells that nothing more can join, then the deepest, whose results the most others wait for.
  int32_t choose(bool frames_wait) const;

  /// Whether a firing that is expected has not been taken.
  bool any_left() const;

 private:
  struct Ready {
    std::deque<int32_t> firings;
    int64_t depths = 0;          // sum over their frames
    int64_t unfired = 0;         // those that are not ready yet included
    bool feeds_control = false;  // whether control may read what follows from it
    double average_depth() const {
      return static_cast<double>(depths) / static_cast<double>(firings.size());
    }
  };

  void find_control_cells(const Program& program);

  std::vector<Ready> cells_;
};

}  // namespace jaxrec
