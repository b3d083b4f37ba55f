// Which wave widths a group of firings is cut into.
#pragma once

#include <cstdint>
#include <vector>

#include "core/array.h"

namespace jaxrec {

/// Covers n firings with waves of given widths at the least total cost; of equal costs, with the
/// fewest waves, and of as many with the narrowest. Exact: dynamic programming on n, which for
/// large n is first brought down by waves of the width that costs least a row.
class Cover {
 public:
  /// `widths` ascend; `costs` are positive, one a width, the first finite.
  Cover(Span<const int64_t> widths, Span<const double> costs);

  /// Sets `waves` to the widths' numbers, widest first. Their sum reaches n only with the last one.
  void cut(int64_t n, std::vector<int32_t>& waves);

  /// The number of the widest of the waves that cover n > 0 firings, in time that does not grow
  /// with n.
  int32_t widest(int64_t n);

 private:
  struct Best {
    double cost;
    int64_t waves;
    int32_t width;  // of one of them
  };

  int64_t take_thrifty(int64_t n, int64_t& units) const;
  void extend(int64_t units);

  Span<const int64_t> widths_;
  Span<const double> costs_;
  std::vector<Best> best_;  // of each number of units, as far as needed
  int64_t unit_ = 0;        // rows
  int32_t thrifty_ = 0;     // the width that costs least a row
  int64_t exact_below_;     // units; above it only `thrifty_` waves are added
};

}  // namespace jaxrec
