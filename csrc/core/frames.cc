#include "core/frames.h"

#include <limits>
#include <utility>

namespace jaxrec {
namespace {

void take_segment(const Segment& segment, int32_t outline_shift, FrameTable& frames) {
  frames.calls.insert(frames.calls.end(), segment.calls.begin(), segment.calls.end());
  for (int32_t outline : segment.outlines) frames.outlines.push_back(outline + outline_shift);
  frames.exports.insert(frames.exports.end(), segment.exports.begin(), segment.exports.end());
}

void take_segments(Expansion& expansion, FrameTable& frames) {
  if (expansion.segments.size() == 1) {  // nearly always: then nothing is copied
    Segment& segment = *expansion.segments[0];
    frames.table = std::move(expansion.workers[0]->table);
    frames.calls = std::move(segment.calls);
    frames.outlines = std::move(segment.outlines);
    frames.exports = std::move(segment.exports);
    frames.repeats = std::move(segment.repeats);  // if there are any, there is one segment
    return;
  }
  std::vector<int32_t> shifts;
  for (const auto& worker : expansion.workers) shifts.push_back(frames.table.append(worker->table));
  frames.calls.reserve(expansion.num_calls);
  frames.outlines.reserve(expansion.num_calls);
  for (const Segment* segment : expansion.segments)
    take_segment(*segment, shifts[segment->worker], frames);
}

struct Totals {
  int64_t child = 0, firing = 0, input = 0, output = 0, arg = 0, result = 0;

  FrameStart start() const {
    return {static_cast<int32_t>(child), static_cast<int32_t>(firing),
            static_cast<int32_t>(input), static_cast<int32_t>(output),
            static_cast<int32_t>(arg),   static_cast<int32_t>(result)};
  }
  void add(const Outline& outline, const Function& function) {
    child += outline.num_calls;
    firing += outline.num_firings;
    input += outline.num_inputs;
    output += outline.num_outputs;
    arg += static_cast<int64_t>(function.data.size());
    result += static_cast<int64_t>(function.results.size());
  }
  bool fit() const {
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    return child <= kMost && firing <= kMost && input <= kMost && output <= kMost && arg <= kMost &&
           result <= kMost;
  }
};

// Calls whose frame was there already.
void add_repeats(const std::vector<int32_t>& bases, FrameTable& frames) {
  for (const Repeat& repeat : frames.repeats) {
    const int32_t parent = bases[repeat.call->segment] + repeat.call->parent;
    frames.children[frames.starts[parent].child + repeat.call->ordinal] = repeat.frame;
  }
}

}  // namespace

Status number_frames(const Program& program, Expansion& expansion, FrameTable& frames) {
  take_segments(expansion, frames);
  return place_frames(program, expansion.bases, frames);
}

Status place_frames(const Program& program, const std::vector<int32_t>& bases, FrameTable& frames) {
  const int32_t n = frames.size();
  frames.parents.resize(n);
  frames.starts.resize(n);
  frames.children.resize(n + frames.repeats.size());
  Totals totals;
  for (int32_t i = 0; i < n; ++i) {
    const Call& call = *frames.calls[i];
    const Outline& outline = frames.outline(i);
    frames.starts[i] = totals.start();
    totals.add(outline, program.functions[outline.function]);
    if (call.parent == Call::kRoot) {
      frames.parents[i] = -1;
      frames.roots.push_back(i);
    } else {
      const int32_t parent = bases[call.segment] + call.parent;
      frames.parents[i] = parent;
      frames.children[frames.starts[parent].child + call.ordinal] = i;
    }
  }
  if (!totals.fit())
    return internal_error("more than 2147483647 values in one invocation (" + std::to_string(n) +
                          " calls)");
  add_repeats(bases, frames);
  frames.totals = totals.start();
  return {};
}

}  // namespace jaxrec
