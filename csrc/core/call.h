// The records of an expansion: calls, and the segments their frames are numbered in.
#pragma once

#include <cstdint>
#include <vector>

#include "core/arith.h"

namespace jaxrec {

/// A call that was made; it becomes a frame when it runs. Its control arguments follow it in
/// memory. Kept small: a runaway recursion makes millions before it is stopped.
struct Call {
  int32_t segment;  // of the caller (for a root call: the first segment)
  int32_t parent;   // the caller's place in its segment, or kRoot
  int32_t ordinal;  // among the caller's calls, in program order
  int32_t callee;
  int32_t lane;
  int32_t depth;  // 1 for a root

  static constexpr int32_t kRoot = -1;

  Word* control() { return reinterpret_cast<Word*>(this + 1); }
  const Word* control() const { return reinterpret_cast<const Word*>(this + 1); }
};
static_assert(sizeof(Call) % alignof(Word) == 0, "the control arguments follow at once");

/// A call that became no frame of its own, since an equal one was there: a place in the segment.
struct Repeat {
  const Call* call;
  int32_t frame;
};

/// Frames that one worker ran one after another, depth first: a run of the preorder, apart from the
/// subtrees that others stole. All of it comes before them, and of them the one stolen last comes
/// first: when a worker's oldest task is taken, all that it still holds precedes that task.
struct Segment {
  int32_t number = 0;  // among all workers' segments; the first has the roots
  int32_t worker = 0;
  int32_t origin = -1;             // the segment its first call was stolen from
  int64_t steal = 0;               // when: greater is later
  std::vector<const Call*> calls;  // of each frame
  std::vector<int32_t> outlines;   // of each frame, in its worker's table
  std::vector<Word> exports;       // control values handed to cells, in order
  std::vector<Repeat> repeats;     // of functions that are shared: then there is one segment
};

}  // namespace jaxrec
