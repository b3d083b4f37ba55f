// The control machine: runs one frame's program to its end.
#pragma once

#include <cstdint>
#include <vector>

#include "core/arena.h"
#include "core/call.h"
#include "core/outline.h"

namespace jaxrec {

/// An outer array, bound. One that is batched has a leading axis, and a lane reads its own part.
struct Outer {
  Array array;
  int64_t lane_stride = 1;
  int64_t lane_size = 0;     // 0: the same for all lanes
  Span<const int64_t> dims;  // without the lanes' axis
  int64_t elements = 1;      // of one lane
  LoadFn load = nullptr;

  int64_t base(int32_t lane) const {
    return lane_size == 0 ? 0 : (lane / lane_stride) % lane_size * elements;
  }
};

/// The place in `outer` (of one lane) of the element whose indices stand in registers; the first
/// axis whose index is out of range, or -1 if none is.
inline int32_t locate(const Outer& outer, const int32_t* operands, const Word* registers,
                      int64_t& offset) {
  offset = 0;
  for (size_t axis = 0; axis < outer.dims.size(); ++axis) {
    const Word index = registers[operands[axis]];
    if (index < 0 || index >= outer.dims[axis]) return static_cast<int32_t>(axis);
    offset = offset * outer.dims[axis] + index;
  }
  return -1;
}

/// Why a frame could not run: it read outside an array.
struct IndexFault {
  const Call* call = nullptr;
  int32_t outer = 0;
  int32_t axis = 0;
  std::vector<Word> index;
};

/// One worker's machine. It writes frames, calls and exports where it is told to.
class Machine {
 public:
  Machine(const Program& program, const std::vector<Outer>& outers, Arena& arena,
          OutlineTable& table);

  /// Runs `call` as the next frame of `segment`. False: see `fault`.
  bool run(const Call& call, Segment& segment);

  /// The calls the last frame made, in program order.
  const std::vector<Call*>& made() const { return made_; }
  const IndexFault& fault() const { return fault_; }

 private:
  bool load(const Instr& in, const Call& call);
  const Instr* branch(const Instr& in, int32_t& link);
  void make_call(const Instr& in, const Call& caller, Segment& segment);
  void finish(const Call& call, Segment& segment, int32_t link);

  const Program& program_;
  const std::vector<Outer>& outers_;
  Arena& arena_;
  OutlineTable& table_;
  std::vector<Word> registers_;
  std::vector<int32_t> branches_;  // taken by the frame
  std::vector<Call*> made_;
  IndexFault fault_;
};

/// A call record with room for `num_control` arguments.
Call* new_call(Arena& arena, const Call& fields, size_t num_control);

}  // namespace jaxrec
