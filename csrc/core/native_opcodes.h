// The encoded language of native programs, and the instructions that the machine runs it as.
#pragma once

#include <cstdint>

#include "core/opcode.h"

namespace jaxrec::native {

// The encoding: append, never reorder. Operations are numbers of jaxrec::Op; `bits` is a register's
// word; targets are word offsets in the function's code.
//
//   CONST dst dtype bits              MOVE dst a                  CONVERT dst to from a
//   UNARY op dst dtype a              BINARY op dst dtype a b     BINARY_IMM op dst dtype a bits
//   SELECT dst which a b              WRAP dst dtype a size: an index counted from the end
//   LOAD dst outer n indices          SWITCH a n targets          JUMP target
//   BRANCH a target: if not zero      COMPARE op dtype a b target
//   COMPARE_IMM op dtype a bits target
//   CALL callee site n args n results RETURN n registers          RETURN_IMM dtype bits
//   LOOP target: a jump back
// clang-format off
#define JAXREC_NATIVE_FORMS(X)                                                           \
  X(CONST) X(MOVE) X(CONVERT) X(UNARY) X(BINARY) X(BINARY_IMM) X(SELECT) X(WRAP) X(LOAD) \
  X(BRANCH) X(COMPARE) X(COMPARE_IMM) X(SWITCH) X(JUMP) X(CALL) X(RETURN) X(RETURN_IMM)  \
  X(LOOP)
// clang-format on

enum class Form : uint8_t {
#define JAXREC_DECLARE(name) name,
  JAXREC_NATIVE_FORMS(JAXREC_DECLARE)
#undef JAXREC_DECLARE
};

inline constexpr const char* kFormNames[] = {
#define JAXREC_NAME(name) #name,
    JAXREC_NATIVE_FORMS(JAXREC_NAME)
#undef JAXREC_NAME
};
inline constexpr int kNumForms = sizeof(kFormNames) / sizeof(kFormNames[0]);

inline constexpr int64_t kMagic = 0x6a6e;
inline constexpr int64_t kVersion = 2;

// Operations with instructions of their own, by the types that programs use most: X(Op, its type in
// arith_ops.h, element type, C++ type). The others go through function pointers.
// clang-format off
#define JAXREC_HOT_INT(X, D, T)                                                             \
  X(ADD, Add, D, T) X(SUB, Sub, D, T) X(MUL, Mul, D, T) X(DIV, Div, D, T) X(REM, Rem, D, T) \
  X(MIN, Min, D, T) X(MAX, Max, D, T) X(AND, And, D, T) X(OR, Or, D, T) X(XOR, Xor, D, T)   \
  X(SHL, Shl, D, T) X(SHRA, ShiftArithmetic, D, T) X(SHRL, ShiftLogical, D, T)
#define JAXREC_HOT_FLOAT(X, D, T)                                         \
  X(ADD, Add, D, T) X(SUB, Sub, D, T) X(MUL, Mul, D, T) X(DIV, Div, D, T) \
  X(MIN, Min, D, T) X(MAX, Max, D, T) X(MULTIPLE, Multiple, D, T) X(PORTION, Portion, D, T)
#define JAXREC_HOT_ARITHMETIC(X)                                    \
  JAXREC_HOT_INT(X, kI32, int32_t) JAXREC_HOT_INT(X, kI64, int64_t) \
  JAXREC_HOT_FLOAT(X, kF32, float) JAXREC_HOT_FLOAT(X, kF64, double)

#define JAXREC_HOT_COMPARE_OF(X, D, T)                              \
  X(EQ, Eq, D, T) X(NE, Ne, D, T) X(LT, Lt, D, T) X(LE, Le, D, T)   \
  X(GT, Gt, D, T) X(GE, Ge, D, T)
#define JAXREC_HOT_COMPARE(X)                                                     \
  JAXREC_HOT_COMPARE_OF(X, kI32, int32_t) JAXREC_HOT_COMPARE_OF(X, kI64, int64_t) \
  JAXREC_HOT_COMPARE_OF(X, kF32, float) JAXREC_HOT_COMPARE_OF(X, kF64, double)

// Element types whose loads from a vector have an instruction of their own.
#define JAXREC_HOT_LOAD(X) \
  X(kBool, bool) X(kI32, int32_t) X(kI64, int64_t) X(kF32, float) X(kF64, double)

// Instructions without an element type. CALL1 to CALL3 have one result and so many arguments; END and
// JOIN stand behind the calls that other code than the program's makes (native_stack.h).
#define JAXREC_NATIVE_PLAIN(X)                                                              \
  X(CONST) X(MOVE) X(UNARY) X(BINARY) X(SELECT) X(WRAP_kI32) X(WRAP_kI64) X(LOAD0) X(LOAD1) \
  X(LOADN) X(BRANCH) X(SWITCH) X(JUMP) X(LOOP) X(CALL1) X(CALL2) X(CALL3) X(CALLN)          \
  X(CALL_MEMO) X(RET1) X(RETN) X(RET_IMM) X(RET_MEMO) X(END) X(JOIN)
// clang-format on

enum class MachineOp : uint16_t {
#define JAXREC_PLAIN(name) name,
#define JAXREC_ARITHMETIC(op, f, d, t) op##_##d, op##_##d##_IMM,
#define JAXREC_BRANCH(op, f, d, t) BRANCH_##op##_##d, BRANCH_##op##_##d##_IMM,
#define JAXREC_LOAD(d, t) LOAD1_##d,
  JAXREC_NATIVE_PLAIN(JAXREC_PLAIN) JAXREC_HOT_ARITHMETIC(JAXREC_ARITHMETIC)
      JAXREC_HOT_COMPARE(JAXREC_ARITHMETIC) JAXREC_HOT_COMPARE(JAXREC_BRANCH)
          JAXREC_HOT_LOAD(JAXREC_LOAD)
#undef JAXREC_PLAIN
#undef JAXREC_ARITHMETIC
#undef JAXREC_BRANCH
#undef JAXREC_LOAD
};

/// The instructions from which on an element type is part of the name; of arithmetic and of
/// branches every second one has an immediate in place of the second register.
inline constexpr MachineOp kFirstArithmetic = MachineOp::ADD_kI32;
inline constexpr MachineOp kFirstBranch = MachineOp::BRANCH_EQ_kI32;
inline constexpr MachineOp kFirstLoad = MachineOp::LOAD1_kBool;

inline constexpr bool is_arithmetic(MachineOp op) {
  return op >= kFirstArithmetic && op < kFirstBranch;
}
inline constexpr bool is_compare_branch(MachineOp op) {
  return op >= kFirstBranch && op < kFirstLoad;
}
inline constexpr bool is_vector_load(MachineOp op) {
  return op >= kFirstLoad || op == MachineOp::LOAD1;
}
/// Of arithmetic and comparing branches.
inline constexpr bool has_immediate(MachineOp op) {
  const MachineOp first = is_arithmetic(op) ? kFirstArithmetic : kFirstBranch;
  return (static_cast<int>(op) - static_cast<int>(first)) % 2 == 1;
}
inline constexpr bool leaves(MachineOp op) {
  return op == MachineOp::RET1 || op == MachineOp::RETN || op == MachineOp::RET_IMM ||
         op == MachineOp::RET_MEMO;
}

}  // namespace jaxrec::native
