// The instruction set of the control machine. The numbers are the encoding: append, never reorder.
#pragma once

#include <cstdint>

namespace jaxrec {

// clang-format off
#define JAXREC_OPCODES(X)                                                                   \
  X(CONST) X(CONVERT) X(SELECT) X(LOAD) X(SWITCH) X(JUMP) X(CALL) X(FIRE) X(ALIAS) X(RETURN) \
  X(NEG) X(NOT) X(ABS) X(SIGN) X(SQRT) X(FLOOR) X(CEIL) X(ROUND) X(ROUND_EVEN)              \
  X(IS_FINITE) X(POPCNT) X(CLZ)                                                             \
  X(ADD) X(SUB) X(MUL) X(DIV) X(REM) X(MIN) X(MAX) X(AND) X(OR) X(XOR)                      \
  X(SHL) X(SHRA) X(SHRL) X(EQ) X(NE) X(LT) X(LE) X(GT) X(GE)                        \
  X(IMPORT)                                                                                 \
  X(EXP) X(EXP2) X(EXPM1) X(LOG) X(LOG1P) X(RSQRT) X(CBRT)                                  \
  X(SIN) X(COS) X(TAN) X(ASIN) X(ACOS) X(ATAN)                                              \
  X(SINH) X(COSH) X(TANH) X(ASINH) X(ACOSH) X(ATANH) X(LOGISTIC) X(ERF) X(ERFC)             \
  X(POW) X(ATAN2)                                                                           \
  X(MULTIPLE) X(PORTION)
// clang-format on

enum class Op : uint8_t {
#define JAXREC_DECLARE(name) name,
  JAXREC_OPCODES(JAXREC_DECLARE)
#undef JAXREC_DECLARE
};

inline constexpr const char* kOpNames[] = {
#define JAXREC_NAME(name) #name,
    JAXREC_OPCODES(JAXREC_NAME)
#undef JAXREC_NAME
};
inline constexpr int kNumOps = sizeof(kOpNames) / sizeof(kOpNames[0]);

/// Those with the same result in XLA bit for bit.
inline constexpr bool is_unary(Op op) { return op >= Op::NEG && op <= Op::CLZ; }
inline constexpr bool is_binary(Op op) { return op >= Op::ADD && op <= Op::GE; }

/// First two words of every encoded program.
inline constexpr int64_t kMagic = 0x6a72;
inline constexpr int64_t kVersion = 3;

}  // namespace jaxrec
