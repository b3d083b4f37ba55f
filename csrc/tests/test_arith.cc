#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include "core/arith.h"
#include "tests/check.h"

namespace jaxrec {
namespace {

template <class T>
constexpr DType type_of() {
  if constexpr (std::is_same_v<T, bool>) return DType::kBool;
  else if constexpr (std::is_same_v<T, int8_t>) return DType::kI8;
  else if constexpr (std::is_same_v<T, int16_t>) return DType::kI16;
  else if constexpr (std::is_same_v<T, int32_t>) return DType::kI32;
  else if constexpr (std::is_same_v<T, int64_t>) return DType::kI64;
  else if constexpr (std::is_same_v<T, uint8_t>) return DType::kU8;
  else if constexpr (std::is_same_v<T, uint16_t>) return DType::kU16;
  else if constexpr (std::is_same_v<T, uint32_t>) return DType::kU32;
  else if constexpr (std::is_same_v<T, uint64_t>) return DType::kU64;
  else if constexpr (std::is_same_v<T, float>) return DType::kF32;
  else return DType::kF64;
}

template <class T>
T unary(Op op, T x) {
  return from_word<T>(unary_op(op, type_of<T>())(to_word(x)));
}
template <class T>
T binary(Op op, T a, T b) {
  return from_word<T>(binary_op(op, type_of<T>())(to_word(a), to_word(b)));
}
template <class T>
bool compare(Op op, T a, T b) {
  return binary_op(op, type_of<T>())(to_word(a), to_word(b)) != 0;
}
template <class To, class From>
To convert(From x) {
  return from_word<To>(convert_op(type_of<To>(), type_of<From>())(to_word(x)));
}

template <class T>
void division() {
  constexpr T kLow = std::numeric_limits<T>::min();
  CHECK(binary<T>(Op::DIV, 7, 0) == static_cast<T>(-1));
  CHECK(binary<T>(Op::REM, 7, 0) == 7);
  CHECK(binary<T>(Op::DIV, 7, 2) == 3);
  CHECK(binary<T>(Op::REM, 7, 2) == 1);
  if (!std::is_signed_v<T>) return;
  CHECK(binary<T>(Op::DIV, kLow, static_cast<T>(-1)) == kLow);
  CHECK(binary<T>(Op::REM, kLow, static_cast<T>(-1)) == 0);
  CHECK(binary<T>(Op::DIV, static_cast<T>(-7), 2) == static_cast<T>(-3));
  CHECK(binary<T>(Op::REM, static_cast<T>(-7), 2) == static_cast<T>(-1));
}

template <class T>
void wrapping() {
  constexpr T kLow = std::numeric_limits<T>::min(), kHigh = std::numeric_limits<T>::max();
  CHECK(binary<T>(Op::ADD, kHigh, 1) == kLow);
  CHECK(binary<T>(Op::SUB, kLow, 1) == kHigh);
  CHECK(binary<T>(Op::MUL, kHigh, 2) == static_cast<T>(-2));
  CHECK(unary<T>(Op::NEG, kLow) == static_cast<T>(0 - static_cast<uint64_t>(kLow)));
  CHECK(unary<T>(Op::ABS, kLow) == kLow);
  CHECK(unary<T>(Op::NOT, 0) == static_cast<T>(-1));
  CHECK(unary<T>(Op::SIGN, kHigh) == 1 && unary<T>(Op::SIGN, 0) == 0);
}

template <class T>
void bits() {
  constexpr int kWidth = 8 * sizeof(T);
  const T top = static_cast<T>(uint64_t{1} << (kWidth - 1));
  CHECK(binary<T>(Op::SHL, 1, kWidth - 1) == top);
  CHECK(binary<T>(Op::SHL, 1, kWidth) == 0);
  CHECK(binary<T>(Op::SHRL, top, kWidth - 1) == 1);
  CHECK(binary<T>(Op::SHRL, top, kWidth) == 0);
  CHECK(binary<T>(Op::SHRA, top, kWidth - 1) == static_cast<T>(-1));
  CHECK(binary<T>(Op::SHRA, top, kWidth) == static_cast<T>(-1));
  CHECK(binary<T>(Op::SHRA, 64, kWidth + 1) == 0);
  CHECK(binary<T>(Op::SHL, 1, static_cast<T>(-1)) == 0);
  CHECK(unary<T>(Op::POPCNT, static_cast<T>(-1)) == kWidth);
  CHECK(unary<T>(Op::CLZ, 1) == kWidth - 1 && unary<T>(Op::CLZ, 0) == kWidth);
  CHECK(binary<T>(Op::AND, 6, 3) == 2 && binary<T>(Op::OR, 6, 3) == 7 &&
        binary<T>(Op::XOR, 6, 3) == 5);
}

template <class T>
void integers() {
  division<T>();
  wrapping<T>();
  bits<T>();
  CHECK(compare<T>(Op::LT, 1, 2) && compare<T>(Op::LE, 2, 2) && !compare<T>(Op::GT, 1, 2));
  CHECK(compare<T>(Op::GE, 2, 2) && compare<T>(Op::EQ, 2, 2) && compare<T>(Op::NE, 1, 2));
  CHECK(binary<T>(Op::MIN, 3, 5) == 3 && binary<T>(Op::MAX, 3, 5) == 5);
  for (Op op : {Op::SQRT, Op::FLOOR, Op::IS_FINITE, Op::EXP})
    CHECK(unary_op(op, type_of<T>()) == nullptr);
}

template <class T>
void floats() {
  constexpr T kNan = std::numeric_limits<T>::quiet_NaN(), kInf = std::numeric_limits<T>::infinity();
  CHECK(std::isnan(binary<T>(Op::MIN, 1, kNan)) && std::isnan(binary<T>(Op::MAX, kNan, 1)));
  CHECK(std::signbit(binary<T>(Op::MIN, 0, -T(0))) && !std::signbit(binary<T>(Op::MAX, -T(0), 0)));
  CHECK(binary<T>(Op::DIV, 1, 0) == kInf);
  CHECK(binary<T>(Op::MULTIPLE, 3, 2) == 6 && binary<T>(Op::MULTIPLE, 0, kInf) == 0);
  CHECK(binary<T>(Op::PORTION, 3, 2) == T(1.5) && binary<T>(Op::PORTION, 0, 0) == 0);
  CHECK(std::isnan(binary<T>(Op::MULTIPLE, kInf, 0)) && binary<T>(Op::PORTION, 1, 0) == kInf);
  CHECK(binary<T>(Op::REM, -T(7.5), 2) == -T(1.5));
  CHECK(unary<T>(Op::ROUND, T(2.5)) == 3 && unary<T>(Op::ROUND_EVEN, T(2.5)) == 2);
  CHECK(unary<T>(Op::ROUND, -T(2.5)) == -3 && unary<T>(Op::FLOOR, -T(0.5)) == -1);
  CHECK(unary<T>(Op::CEIL, T(0.5)) == 1 && unary<T>(Op::SQRT, T(9)) == 3);
  CHECK(std::isnan(unary<T>(Op::SIGN, kNan)) && std::signbit(unary<T>(Op::SIGN, -T(0))));
  CHECK(unary<T>(Op::SIGN, -T(3)) == -1 && unary<T>(Op::ABS, -T(3)) == 3);
  CHECK(unary_op(Op::IS_FINITE, type_of<T>())(to_word(kInf)) == 0);
  CHECK(unary_op(Op::IS_FINITE, type_of<T>())(to_word(T(1))) == 1);
  CHECK(!compare<T>(Op::EQ, kNan, kNan) && compare<T>(Op::NE, kNan, kNan));
  for (Op op : {Op::AND, Op::SHL}) CHECK(binary_op(op, type_of<T>()) == nullptr);
  CHECK(convert<int32_t>(kNan) == 0);
  CHECK(convert<int32_t>(kInf) == std::numeric_limits<int32_t>::max());
  CHECK(convert<int64_t>(-kInf) == std::numeric_limits<int64_t>::min());
  CHECK(convert<uint8_t>(T(-3)) == 0 && convert<uint8_t>(T(300)) == 255 &&
        convert<uint8_t>(T(3.9)) == 3);
  CHECK(convert<uint64_t>(T(1e30)) == std::numeric_limits<uint64_t>::max());
  CHECK(convert<int32_t>(-T(3.9)) == -3);
  CHECK(convert<bool>(T(0.5)) && !convert<bool>(T(0)));
}

template <class T>
void library() {
  constexpr T kInf = std::numeric_limits<T>::infinity();
  CHECK(unary<T>(Op::EXP, 0) == 1 && unary<T>(Op::EXP, -kInf) == 0 && unary<T>(Op::EXP2, 5) == 32);
  CHECK(unary<T>(Op::LOG, 0) == -kInf && std::isnan(unary<T>(Op::LOG, -1)));
  CHECK(unary<T>(Op::EXPM1, 0) == 0 && unary<T>(Op::LOG1P, 0) == 0);
  CHECK(std::fabs(unary<T>(Op::CBRT, 27) - 3) < T(1e-6));
  CHECK(unary<T>(Op::RSQRT, 4) == T(0.5) && unary<T>(Op::RSQRT, 0) == kInf);
  CHECK(unary<T>(Op::LOGISTIC, 0) == T(0.5) && unary<T>(Op::LOGISTIC, -kInf) == 0);
  CHECK(unary<T>(Op::ERF, kInf) == 1 && unary<T>(Op::ERFC, kInf) == 0);
  for (Op op : {Op::SIN, Op::TAN, Op::ASIN, Op::ATAN, Op::SINH, Op::TANH, Op::ASINH, Op::ATANH})
    CHECK(unary<T>(op, 0) == 0 && std::signbit(unary<T>(op, -T(0))));
  for (Op op : {Op::COS, Op::COSH}) CHECK(unary<T>(op, 0) == 1);
  for (Op op : {Op::ACOS, Op::ACOSH}) CHECK(unary<T>(op, 1) == 0);
  CHECK(binary<T>(Op::POW, 2, 10) == 1024 && binary<T>(Op::POW, 0, 0) == 1);
  CHECK(binary<T>(Op::ATAN2, 0, 1) == 0 && binary<T>(Op::ATAN2, 1, 0) > T(1.57));
}

void single_precision() {
  CHECK(binary<float>(Op::ADD, 16777216.0f, 1.0f) == 16777216.0f);  // not computed in double
  CHECK(convert<float>(int64_t{16777217}) == 16777216.0f);
  CHECK(convert<float>(0.1) == 0.1f);
  CHECK(convert<double>(0.1f) == static_cast<double>(0.1f));
}

void conversions_between_integers() {
  CHECK(convert<int8_t>(int32_t{300}) == 44);
  CHECK(convert<uint32_t>(int32_t{-1}) == 0xffffffffu);
  CHECK(convert<int64_t>(uint32_t{0xffffffffu}) == 0xffffffffll);
  CHECK(convert<int32_t>(true) == 1 && convert<bool>(int32_t{256}));
}

void booleans() {
  CHECK(unary<bool>(Op::NOT, false) && !unary<bool>(Op::NOT, true));
  CHECK(binary<bool>(Op::XOR, true, false) && !binary<bool>(Op::AND, true, false));
  CHECK(compare<bool>(Op::LT, false, true) && binary<bool>(Op::MAX, false, true));
  CHECK(binary_op(Op::ADD, DType::kBool) == nullptr);
}

void elements() {
  const float values[] = {1.5f, -2.0f};
  CHECK(from_word<float>(load_element(values, DType::kF32, 1)) == -2.0f);
  uint16_t out[2] = {0, 0};
  store_element(out, DType::kU16, 1, 65537);
  CHECK(out[0] == 0 && out[1] == 1);
  const int8_t small[] = {-5};
  CHECK(load_element(small, DType::kI8, 0) == -5);
}

}  // namespace
}  // namespace jaxrec

int main() {
  using namespace jaxrec;
  integers<int8_t>(), integers<int16_t>(), integers<int32_t>(), integers<int64_t>();
  integers<uint8_t>(), integers<uint16_t>(), integers<uint32_t>(), integers<uint64_t>();
  CHECK(unary<int32_t>(Op::SIGN, -9) == -1 && unary<int32_t>(Op::ABS, -9) == 9);
  floats<float>(), floats<double>();
  library<float>(), library<double>();
  single_precision();
  conversions_between_integers();
  booleans();
  elements();
  return report("arith");
}
