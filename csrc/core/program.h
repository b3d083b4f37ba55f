// A decoded control program: fixed-size instructions with side pools, valid by construction.
//
// A function's code runs from its first instruction to a RETURN. Jumps only go forward, so every
// instruction runs at most once a frame: what a frame does with data is settled by the branches it
// takes, and a frame's program always ends.
#pragma once

#include <cstdint>
#include <vector>

#include "core/arith.h"
#include "core/array.h"
#include "core/opcode.h"
#include "core/status.h"

namespace jaxrec {

/// How the machine runs an instruction (operations of one shape share a kind).
enum class Kind : uint8_t {
  kConst,
  kUnary,
  kBinary,
  kSelect,
  kLoad,
  kSwitch,
  kJump,
  kCall,
  kFire,
  kAlias,
  kReturn,
  kImport
};

/// One instruction. The operands by kind (`pool` is Program::pool):
///   kConst   dst = imm                      kUnary   dst = unary(a)
///   kBinary  dst = binary(a, b)             kSelect  dst = a ? c : b
///   kLoad    dst = outer a[registers at pool b]
///   kSwitch  go to the target at pool c + clamp(register a, 0, b - 1)
///   kJump    go to a                        kAlias   slot dst = slot a
///   kCall    function a, site b; pool c: control registers, data slots, result slots
///   kFire    cell a; pool c: export registers, input slots, output slots
///   kReturn  pool c: result slots
///   kImport  dst = the value that slot a stands for, once a cell has made it; b: which import
struct Instr {
  Kind kind = Kind::kConst;
  int32_t dst = 0, a = 0, b = 0, c = 0;
  union {
    Word imm = 0;
    UnaryFn unary;
    BinaryFn binary;
  };
};

struct OuterType {
  DType dtype;
  int32_t rank;
};

struct Cell {
  std::vector<int32_t> inputs;   // class of each input slot
  std::vector<int32_t> outputs;  // class of each output slot
  std::vector<DType> exports;    // control values handed to the cell
};

/// A class of scalar values that control reads once cells have made them.
struct Import {
  int32_t value_class;
  DType dtype;
};

struct Function {
  bool memo = false;             // calls of a lane with equal control arguments are one frame
  std::vector<DType> control;    // control arguments
  std::vector<int32_t> data;     // class of each data argument
  std::vector<int32_t> results;  // class of each result
  int32_t num_registers = 0;
  int32_t num_slots = 0;
  int32_t code_begin = 0;  // in Program::code
  int32_t code_end = 0;
};

struct Program {
  std::vector<OuterType> outers;
  std::vector<Cell> cells;
  std::vector<Import> imports;  // none: the program is planned
  std::vector<Function> functions;
  std::vector<Instr> code;
  std::vector<int32_t> pool;
  int32_t num_classes = 0;
  int32_t entry = 0;

  const Function& entry_function() const { return functions[entry]; }
  bool has_memo() const;

  /// The input and output slots of the cell that has the most.
  size_t max_inputs() const;
  size_t max_outputs() const;
};

/// Decodes and validates an encoded program. Whatever the words, it only returns a status.
Status decode(Span<const int64_t> words, Program& program);

/// Checks that every register and slot is written before it is read, on every path, and that slots
/// hold the classes that calls, cells and results expect. Part of `decode`.
Status check_flow(const Program& program, int32_t function);

}  // namespace jaxrec
