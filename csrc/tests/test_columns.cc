// Columns compute what words do, element by element, with the vectors of any processor.
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <vector>

#include "core/denormals.h"
#include "core/native_columns.h"
#include "tests/check.h"

namespace jaxrec::native {
namespace {

constexpr int32_t kWidth = 24;

// Words of a type that operations treat in ways of their own.
std::vector<Word> words_of(DType dtype) {
  return with_type(dtype, [](auto tag) {
    using T = typename decltype(tag)::type;
    using Limits = std::numeric_limits<T>;
    std::vector<Word> out;
    const auto add = [&out](std::initializer_list<T> values) {
      for (T value : values) out.push_back(to_word(value));
    };
    if constexpr (std::is_same_v<T, bool>) add({false, true});
    else if constexpr (std::is_floating_point_v<T>)
      add({T(0), -T(0), T(1), T(-1), T(0.5), T(-2.5), T(7), T(1e9), T(-3e30), Limits::infinity(),
           -Limits::infinity(), Limits::quiet_NaN(), Limits::min(), Limits::max()});
    else
      add({T(0), T(1), T(2), T(3), T(7), T(31), T(32), T(100), static_cast<T>(-1),
           static_cast<T>(-2), static_cast<T>(-7), static_cast<T>(-100), Limits::min(),
           static_cast<T>(Limits::min() + 1), Limits::max(), static_cast<T>(Limits::max() - 1)});
    return out;
  });
}

// Whether two words are the same as values of a type; any NaN is as any other.
bool same(DType dtype, Word a, Word b) {
  return with_type(dtype, [=](auto tag) {
    using T = typename decltype(tag)::type;
    const T x = from_word<T>(a), y = from_word<T>(b);
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
      return x == y && std::signbit(x) == std::signbit(y);
    }
    return x == y;
  });
}

template <class W>
struct Check {
  Columns<W> columns;

  void binary(ColumnFn<W> column, ColumnFn<W> by_immediate, BinaryFn scalar, DType from, DType to) {
    const std::vector<Word> words = words_of(from);
    for (const Word right : words) {
      std::vector<W> a(kWidth), b(kWidth, to_element<W>(right)), out(kWidth);
      for (int32_t i = 0; i < kWidth; ++i) a[i] = to_element<W>(words[i % words.size()]);
      for (bool immediate : {false, true}) {
        const ColumnFn<W> run = immediate ? by_immediate : column;
        if (run == nullptr) continue;
        run(out.data(), a.data(), b.data(), to_element<W>(right), kWidth);
        std::vector<W> own = a;  // in place
        run(own.data(), own.data(), b.data(), to_element<W>(right), kWidth);
        for (int32_t i = 0; i < kWidth; ++i) {
          CHECK(same(to, out[i], scalar(words[i % words.size()], right)));
          CHECK(out[i] == own[i]);
        }
      }
    }
  }

  void unary(UnaryFn scalar, DType from, DType to) {
    const ColumnFn<W> column = columns.of(scalar);
    if (column == nullptr) return;
    ++found;
    const std::vector<Word> words = words_of(from);
    std::vector<W> a(kWidth), out(kWidth);
    for (int32_t i = 0; i < kWidth; ++i) a[i] = to_element<W>(words[i % words.size()]);
    column(out.data(), a.data(), a.data(), 0, kWidth);
    for (int32_t i = 0; i < kWidth; ++i) CHECK(same(to, out[i], scalar(words[i % words.size()])));
  }

  void instructions() {
#define JAXREC_CHECK(op, f, d, t)                                                  \
  if (sizeof(t) <= sizeof(W))                                                      \
    binary(columns.of(MachineOp::op##_##d), columns.of(MachineOp::op##_##d##_IMM), \
           binary_op(Op::op, DType::d), DType::d, DType::d);
    JAXREC_HOT_ARITHMETIC(JAXREC_CHECK)
#undef JAXREC_CHECK
#define JAXREC_CHECK(op, f, d, t)                                                           \
  if (sizeof(t) <= sizeof(W)) {                                                             \
    const BinaryFn scalar = binary_op(Op::op, DType::d);                                    \
    binary(columns.of(MachineOp::op##_##d), columns.of(MachineOp::op##_##d##_IMM), scalar,  \
           DType::d, DType::kBool);                                                         \
    binary(columns.of(MachineOp::BRANCH_##op##_##d),                                        \
           columns.of(MachineOp::BRANCH_##op##_##d##_IMM), scalar, DType::d, DType::kBool); \
  }
    JAXREC_HOT_COMPARE(JAXREC_CHECK)
#undef JAXREC_CHECK
    // Whatever fits in half a word is compared as it would be as a whole one.
    binary(columns.of(MachineOp::BRANCH_GT_kI64), nullptr, binary_op(Op::GT, DType::kI64),
           DType::kI32, DType::kBool);
  }

  void functions() {
    for (int32_t d = 0; d < kNumDTypes; ++d) {
      const auto dtype = static_cast<DType>(d);
      if (byte_width(dtype) > sizeof(W)) continue;
      for (int32_t k = 0; k < jaxrec::kNumOps; ++k) {
        const auto op = static_cast<Op>(k);
        const bool compares = op >= Op::EQ && op <= Op::GE;
        if (const UnaryFn scalar = unary_op(op, dtype))
          unary(scalar, dtype, op == Op::IS_FINITE ? DType::kBool : dtype);
        const BinaryFn scalar = binary_op(op, dtype);
        if (scalar == nullptr || columns.of(scalar) == nullptr) continue;
        ++found;
        binary(columns.of(scalar), nullptr, scalar, dtype, compares ? DType::kBool : dtype);
      }
      for (int32_t to = 0; to < kNumDTypes; ++to)
        if (byte_width(static_cast<DType>(to)) <= sizeof(W))
          unary(convert_op(static_cast<DType>(to), dtype), dtype, static_cast<DType>(to));
    }
    CHECK(found > 30);
  }

  void whole() {
    std::vector<W> mask(kWidth), a(kWidth), b(kWidth), out(kWidth);
    for (int32_t i = 0; i < kWidth; ++i) {
      mask[i] = i % 3 == 0 ? -1 : 0;
      a[i] = i - 7;
      b[i] = 100 + i;
    }
    out = a;
    columns.blend(out.data(), b.data(), mask.data(), kWidth);
    for (int32_t i = 0; i < kWidth; ++i) CHECK(out[i] == (i % 3 == 0 ? b[i] : a[i]));
    columns.select(out.data(), a.data(), b.data(), a.data(), kWidth);
    for (int32_t i = 0; i < kWidth; ++i) CHECK(out[i] == (i == 7 ? 0 : b[i]));
    columns.wrap(out.data(), a.data(), 50, kWidth);
    for (int32_t i = 0; i < kWidth; ++i) CHECK(out[i] == (i < 7 ? i + 43 : i - 7));
    CHECK(columns.count(b.data(), mask.data(), kWidth) == 8);
    mask[7] = -1;
    CHECK(columns.count(a.data(), mask.data(), kWidth) == 8);  // a[7] is 0
    mask[7] = 0;
    out = b;
    columns.part(out.data(), a.data(), mask.data(), 5, 6, kWidth);
    for (int32_t i = 0; i < kWidth; ++i) CHECK(out[i] == (i % 3 != 0 ? b[i] : i == 7 ? 6 : 5));
    columns.step(out.data(), mask.data(), kWidth);
    for (int32_t i = 0; i < kWidth; ++i) CHECK(out[i] == (i % 3 != 0 ? b[i] : 6));
    CHECK(columns.largest(b.data(), kWidth) == 100 + kWidth - 1);
    a.assign(kWidth, 3);
    a[4] = a[9] = 8;
    a[5] = 6;
    a[6] = 1;
    const Chosen<W> chosen = columns.choose(mask.data(), a.data(), 8, 3, kWidth);
    CHECK(chosen.count == 2 && chosen.at_least == kWidth - 1 && chosen.next == 6);
    for (int32_t i = 0; i < kWidth; ++i) CHECK(mask[i] == (a[i] == 8 ? -1 : 0));
  }

  void places() {
    std::vector<W> index(kWidth), mask(kWidth, -1), out(kWidth), data(4 * kWidth);
    std::vector<int64_t> places(kWidth, 2);
    for (int32_t i = 0; i < kWidth; ++i) index[i] = i % 3;
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<W>(1000 + i);
    mask[5] = 0;
    index[5] = -9;  // of a lane that does not run
    CHECK(columns.locate(places.data(), index.data(), mask.data(), 3, kWidth));
    for (int32_t i = 0; i < kWidth; ++i) CHECK(places[i] == 6 + (i == 5 ? 0 : i % 3));
    columns.gather(out.data(), data.data(), places.data(), kWidth);
    for (int32_t i = 0; i < kWidth; ++i) CHECK(out[i] == 1000 + places[i]);
    CHECK(!columns.locate(places.data(), index.data(), mask.data(), 2, kWidth));
    CHECK(!columns.locate(places.data(), index.data(), mask.data(), 0, kWidth));
    mask[5] = -1;
    CHECK(!columns.locate(places.data(), index.data(), mask.data(), 3, kWidth));
    index[5] = 0;
    CHECK(columns.locate(places.data(), index.data(), mask.data(), int64_t{1} << 40, kWidth));
  }

  void all() {
    instructions();
    functions();
    whole();
    places();
  }

  int32_t found = 0;
};

}  // namespace
}  // namespace jaxrec::native

int main() {
  using namespace jaxrec::native;
  const jaxrec::FlushDenormals flush;
  for (bool avx2 : {false, true}) {
    if (avx2 && !Columns<int32_t>::has_avx2()) continue;
    Check<int32_t>{Columns<int32_t>(avx2)}.all();
    Check<int64_t>{Columns<int64_t>(avx2)}.all();
  }
  return jaxrec::report("test_columns");
}
