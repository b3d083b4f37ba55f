// The frames of an expansion in one numbering, and the places of what belongs to them.
#pragma once

#include <cstdint>
#include <vector>

#include "core/expand.h"
#include "core/outline.h"
#include "core/status.h"

namespace jaxrec {

/// The first of a frame's children, firings and values, in arrays over all frames.
struct FrameStart {
  int32_t child, firing, input, output, arg, result;
};

/// Frames in preorder, as arrays. A shared frame stands where it is first called, and its parent is
/// that caller.
struct FrameTable {
  std::vector<const Call*> calls;
  std::vector<int32_t> parents;   // -1: a root
  std::vector<int32_t> outlines;  // in `table`
  std::vector<FrameStart> starts;
  std::vector<int32_t> children;  // frame of each call of each frame
  std::vector<Repeat> repeats;    // calls that are not the first of their frame
  std::vector<int32_t> roots;     // frame of each lane's root
  std::vector<Word> exports;      // in firing order
  OutlineTable table;
  FrameStart totals{};

  explicit FrameTable(const Program& program) : table(program) {}

  int32_t size() const { return static_cast<int32_t>(calls.size()); }
  const Outline& outline(int32_t frame) const { return table.outlines[outlines[frame]]; }
  /// The label of the call site a frame was called from; -1 for a root.
  int32_t site(int32_t frame) const {
    if (parents[frame] < 0) return -1;
    return table.calls[outline(parents[frame]).calls + calls[frame]->ordinal].site;
  }
};

/// Places what belongs to frames whose calls, outlines and exports are there, in preorder; `bases`
/// are by segment the number of its first frame.
Status place_frames(const Program& program, const std::vector<int32_t>& bases, FrameTable& frames);

/// Takes what it can from the expansion, whose calls must stay alive.
Status number_frames(const Program& program, Expansion& expansion, FrameTable& frames);

}  // namespace jaxrec
