// Value rows that are handed out again, for an invocation that nothing is differentiated of.
//
// A layout gives every value a row of its own, where the backward pass finds it. Without one, a row
// is of use until the last wave that reads it: so tapes need as many rows as values are alive at a
// time, however many calls are made.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "core/plan.h"

namespace jaxrec {

/// Rows of one tape: which are taken.
class RowPool {
 public:
  explicit RowPool(int32_t first) : end_(first) {}

  /// The first of so many free rows; the smallest gap that has them, or the end.
  int32_t take(int32_t rows);
  void give_back(int32_t start, int32_t rows);
  /// Behind the last row that was ever taken.
  int32_t end() const { return end_; }

 private:
  using Gaps = std::map<int32_t, int32_t>;

  void add(int32_t start, int32_t rows);
  Gaps::iterator remove(Gaps::iterator gap);

  int32_t end_;
  Gaps gaps_;                                      // size by start; no two of them touch
  std::set<std::pair<int32_t, int32_t>> by_size_;  // (size, start)
};

/// Lays the value rows of a schedule out anew. A block has the width of its wave, so that what is
/// computed past the count stays inside. `widths` are those of the schedule.
Status reuse_rows(Span<const int64_t> widths, Schedule& schedule);

}  // namespace jaxrec
