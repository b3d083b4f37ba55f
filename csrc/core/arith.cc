// Function pointers for the operations of arith_ops.h and library_ops.h: the machine dispatches
// once, at decoding, on (operation, element type).
#include "core/arith.h"

#include "core/arith_ops.h"
#include "core/library_ops.h"

namespace jaxrec {
namespace {

template <class F, class T>
Word unary(Word a) {
  return to_word(F::apply(from_word<T>(a)));
}
template <class F, class T>
Word binary(Word a, Word b) {
  return to_word(F::apply(from_word<T>(a), from_word<T>(b)));
}

template <class F>
UnaryFn pick_unary(DType dtype) {
  return with_type(dtype, [](auto tag) -> UnaryFn {
    using T = typename decltype(tag)::type;
    if constexpr (F::template takes<T>) return &unary<F, T>;
    else return nullptr;
  });
}
template <class F>
BinaryFn pick_binary(DType dtype) {
  return with_type(dtype, [](auto tag) -> BinaryFn {
    using T = typename decltype(tag)::type;
    if constexpr (F::template takes<T>) return &binary<F, T>;
    else return nullptr;
  });
}

template <class To, class From>
Word convert_word(Word word) {
  return to_word(ops::convert<To>(from_word<From>(word)));
}

template <class T>
Word load(const void* data, int64_t index) {
  // A byte of a bool may be anything where no cell has written it.
  if constexpr (std::is_same_v<T, bool>) return static_cast<const uint8_t*>(data)[index] != 0;
  else return to_word(static_cast<const T*>(data)[index]);
}

}  // namespace

UnaryFn unary_op(Op op, DType dtype) {
  switch (op) {
    case Op::NEG: return pick_unary<ops::Neg>(dtype);
    case Op::NOT: return pick_unary<ops::Not>(dtype);
    case Op::ABS: return pick_unary<ops::Abs>(dtype);
    case Op::SIGN: return pick_unary<ops::Sign>(dtype);
    case Op::SQRT: return pick_unary<ops::Sqrt>(dtype);
    case Op::FLOOR: return pick_unary<ops::Floor>(dtype);
    case Op::CEIL: return pick_unary<ops::Ceil>(dtype);
    case Op::ROUND: return pick_unary<ops::Round>(dtype);
    case Op::ROUND_EVEN: return pick_unary<ops::RoundEven>(dtype);
    case Op::IS_FINITE: return pick_unary<ops::IsFinite>(dtype);
    case Op::POPCNT: return pick_unary<ops::Popcnt>(dtype);
    case Op::CLZ: return pick_unary<ops::Clz>(dtype);
    case Op::EXP: return pick_unary<ops::Exp>(dtype);
    case Op::EXP2: return pick_unary<ops::Exp2>(dtype);
    case Op::EXPM1: return pick_unary<ops::Expm1>(dtype);
    case Op::LOG: return pick_unary<ops::Log>(dtype);
    case Op::LOG1P: return pick_unary<ops::Log1p>(dtype);
    case Op::RSQRT: return pick_unary<ops::Rsqrt>(dtype);
    case Op::CBRT: return pick_unary<ops::Cbrt>(dtype);
    case Op::SIN: return pick_unary<ops::Sin>(dtype);
    case Op::COS: return pick_unary<ops::Cos>(dtype);
    case Op::TAN: return pick_unary<ops::Tan>(dtype);
    case Op::ASIN: return pick_unary<ops::Asin>(dtype);
    case Op::ACOS: return pick_unary<ops::Acos>(dtype);
    case Op::ATAN: return pick_unary<ops::Atan>(dtype);
    case Op::SINH: return pick_unary<ops::Sinh>(dtype);
    case Op::COSH: return pick_unary<ops::Cosh>(dtype);
    case Op::TANH: return pick_unary<ops::Tanh>(dtype);
    case Op::ASINH: return pick_unary<ops::Asinh>(dtype);
    case Op::ACOSH: return pick_unary<ops::Acosh>(dtype);
    case Op::ATANH: return pick_unary<ops::Atanh>(dtype);
    case Op::LOGISTIC: return pick_unary<ops::Logistic>(dtype);
    case Op::ERF: return pick_unary<ops::Erf>(dtype);
    case Op::ERFC: return pick_unary<ops::Erfc>(dtype);
    default: return nullptr;
  }
}

BinaryFn binary_op(Op op, DType dtype) {
  switch (op) {
    case Op::ADD: return pick_binary<ops::Add>(dtype);
    case Op::SUB: return pick_binary<ops::Sub>(dtype);
    case Op::MUL: return pick_binary<ops::Mul>(dtype);
    case Op::DIV: return pick_binary<ops::Div>(dtype);
    case Op::REM: return pick_binary<ops::Rem>(dtype);
    case Op::MIN: return pick_binary<ops::Min>(dtype);
    case Op::MAX: return pick_binary<ops::Max>(dtype);
    case Op::AND: return pick_binary<ops::And>(dtype);
    case Op::OR: return pick_binary<ops::Or>(dtype);
    case Op::XOR: return pick_binary<ops::Xor>(dtype);
    case Op::SHL: return pick_binary<ops::Shl>(dtype);
    case Op::SHRA: return pick_binary<ops::ShiftArithmetic>(dtype);
    case Op::SHRL: return pick_binary<ops::ShiftLogical>(dtype);
    case Op::EQ: return pick_binary<ops::Eq>(dtype);
    case Op::NE: return pick_binary<ops::Ne>(dtype);
    case Op::LT: return pick_binary<ops::Lt>(dtype);
    case Op::LE: return pick_binary<ops::Le>(dtype);
    case Op::GT: return pick_binary<ops::Gt>(dtype);
    case Op::GE: return pick_binary<ops::Ge>(dtype);
    case Op::POW: return pick_binary<ops::Pow>(dtype);
    case Op::ATAN2: return pick_binary<ops::Atan2>(dtype);
    case Op::MULTIPLE: return pick_binary<ops::Multiple>(dtype);
    case Op::PORTION: return pick_binary<ops::Portion>(dtype);
    default: return nullptr;
  }
}

UnaryFn convert_op(DType to, DType from) {
  return with_type(to, [from](auto to_tag) {
    return with_type(from, [](auto from_tag) -> UnaryFn {
      using To = typename decltype(to_tag)::type;
      using From = typename decltype(from_tag)::type;
      return &convert_word<To, From>;
    });
  });
}

LoadFn load_fn(DType dtype) {
  return with_type(dtype, [](auto tag) -> LoadFn { return &load<typename decltype(tag)::type>; });
}

Word load_element(const void* data, DType dtype, int64_t index) {
  return load_fn(dtype)(data, index);
}

void store_element(void* data, DType dtype, int64_t index, Word word) {
  with_type(dtype, [=](auto tag) {
    using T = typename decltype(tag)::type;
    static_cast<T*>(data)[index] = from_word<T>(word);
  });
}

}  // namespace jaxrec
