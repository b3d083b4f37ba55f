// The walk: where every value comes from.
#pragma once

#include <cstdint>
#include <vector>

#include "core/frames.h"

namespace jaxrec {

/// A value: output number `id` of all firings' outputs in firing order, or, below 0, ~(leaf * lanes
/// + lane) for a data argument of a root.
using ValueId = int32_t;

struct Firing {
  int32_t cell;
  int32_t frame;
  int32_t input;   // first in Values::inputs
  int32_t output;  // first output id
};

/// Firings in order: by frame, then by program order in the frame. Values that are only passed on
/// are gone: an input names the firing output or root argument itself.
struct Values {
  std::vector<Firing> firings;
  std::vector<int32_t> executed;   // firings as plain recursion runs them: after what they read
  std::vector<int32_t> producers;  // firing of each output
  std::vector<ValueId> inputs;
  std::vector<ValueId> results;  // of each frame; from FrameStart::result
};

Values walk(const Program& program, const FrameTable& frames, int64_t lanes);

}  // namespace jaxrec
