// One invocation of a native program: what its workers share.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/machine.h"
#include "core/native_program.h"

namespace jaxrec::native {

/// The arrays of `roots` and `results` have the lanes as leading axis.
struct Invocation {
  const Program& program;
  const std::vector<Outer>& outers;
  const std::vector<Array>& roots;
  const std::vector<Array>& results;
  int64_t lanes;
  int64_t depth_limit;
  int64_t stack_bytes;   // of all workers' stacks; with one worker `depth_limit` frames fit
  int64_t call_limit;    // of all workers together, give or take a poll; negative: none
  int64_t serial_calls;  // threads start after so many calls and instructions of loops
  int32_t workers;
  bool lockstep;                         // whether lanes may run in gangs
  const std::function<bool()>& give_up;  // asked by the calling thread; may be empty
};

}  // namespace jaxrec::native
