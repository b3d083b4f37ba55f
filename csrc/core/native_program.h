// Native scalar programs: functions all of whose values are scalars, run wholly by this machine.
//
// Unlike a control program (program.h), whose results are rows of tapes that cells fill later, a
// native program computes its results itself: a call returns registers to its caller. Jumps go
// forward, those of loops back: a loop asks the supervisor now and then whether to go on.
#pragma once

#include <cstdint>
#include <vector>

#include "core/arith.h"
#include "core/array.h"
#include "core/native_opcodes.h"
#include "core/program.h"
#include "core/status.h"

namespace jaxrec::native {

/// One instruction. Which fields it uses is told where the machine runs it.
struct Instr {
  struct Ref {
    int32_t x;       // a third register, a short immediate, or a place in the pool
    int32_t target;  // a jump's distance, or the callee's first instruction
  };

  uint16_t op = 0;
  uint16_t dst = 0, a = 0, b = 0;
  union {
    Word imm = 0;
    Ref ref;
  };
};
static_assert(sizeof(Instr) == 16, "four to a cache line");

/// A call site. The registers of arguments and results are lists in the pool.
struct CallSite {
  int32_t callee;
  int32_t site;     // its label, for call paths
  int32_t rest;     // calls right behind it that need nothing of it nor of one another: stealable
  int32_t args;     // in the pool
  int32_t results;  // in the pool
};

struct Function {
  std::vector<DType> args;     // of each register that a call fills
  std::vector<DType> results;  // of each register that a return hands over
  int32_t num_registers = 0;
  int32_t code_begin = 0;
  int32_t code_end = 0;
  bool memo = false;
};

/// An argument or result of the entry function: an array of so many elements a lane.
struct Port {
  DType dtype;
  int32_t count;
};

struct Program {
  std::vector<OuterType> outers;
  std::vector<Port> roots;
  std::vector<Port> results;
  std::vector<Function> functions;  // the first is the entry
  std::vector<Instr> code;
  std::vector<int32_t> pool;
  std::vector<UnaryFn> unary;  // of the operations that have no instruction of their own
  std::vector<BinaryFn> binary;
  std::vector<CallSite> calls;
  std::vector<int32_t> call_of;  // by instruction: its place in `calls`, or -1
  int32_t frame_words = 0;       // the same for all functions: frames are found by their number
  bool memo = false;             // whether any function is memoised
  bool half_words = true;        // whether registers need no more: see native_columns.h

  /// The call site of the call that returns to `pc`, an address in `code`.
  const CallSite& site_before(const Instr* pc) const {
    return calls[call_of[pc - code.data() - 1]];
  }
};

/// Decodes and validates an encoded program. Whatever the words, it only returns a status.
Status decode(Span<const int64_t> words, Program& program);

/// Checks that every register is written before it is read, on every path. Part of `decode`.
Status check_flow(const Program& program, const Function& function);

}  // namespace jaxrec::native
