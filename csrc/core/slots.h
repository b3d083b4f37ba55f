// What tasks wait for, from what they read and write.
#pragma once

#include <cstdint>
#include <vector>

#include "core/array.h"
#include "core/runtime.h"

namespace jaxrec {

/// The slots that a task reads and those that it writes; a slot in both is updated in place.
struct SlotUse {
  std::vector<int32_t> reads, writes;
};

/// Edges between tasks that use the same slots, so that any order that respects them gives what the
/// order of the list gives. Slots are numbered from 0 to `num_slots`.
Status edges_of(const std::vector<SlotUse>& tasks, int32_t num_slots, TaskEdges& out);

}  // namespace jaxrec
