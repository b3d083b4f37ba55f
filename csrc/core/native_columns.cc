#include "core/native_columns.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/arith_ops.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define JAXREC_AVX2 1
#endif

// A column may be read and written in place: element by element, so vectors change nothing.
#if defined(__clang__)
#define JAXREC_VECTOR _Pragma("clang loop vectorize(assume_safety)")
#else
#define JAXREC_VECTOR _Pragma("GCC ivdep")
#endif

namespace jaxrec::native {
namespace {

// Whether halves of words hold what an operation reads and writes. Comparisons of integers read
// sign-extended halves.
template <class T, class W, bool kCompares>
inline constexpr bool kFits = sizeof(T) <= sizeof(W) || (kCompares && std::is_integral_v<T>);

// Floats are read where they stand, which compilers turn into vectors.
template <class T, class W>
inline constexpr bool kStands = std::is_floating_point_v<T> && sizeof(T) == sizeof(W);
template <class T>
struct Aliased;
template <>
struct Aliased<float> {
  typedef float Type __attribute__((may_alias));
};
template <>
struct Aliased<double> {
  typedef double Type __attribute__((may_alias));
};

template <class T, class W>
[[gnu::always_inline]] inline T get(const W* column, int32_t i) {
  if constexpr (kStands<T, W>) return reinterpret_cast<const typename Aliased<T>::Type*>(column)[i];
  else return from_element<T>(column[i]);
}
template <class T, class W>
[[gnu::always_inline]] inline void put(W* column, int32_t i, T value) {
  if constexpr (kStands<T, W>) reinterpret_cast<typename Aliased<T>::Type*>(column)[i] = value;
  else column[i] = to_element<W>(to_word(value));
}

#define JAXREC_RUN [[gnu::always_inline]] static inline

// Integers of 32 bits are exact as float64, and so is what their quotient is cut to: vectors divide
// these, and not integers.
struct Quotient {
  static int32_t apply(int32_t a, int32_t b) {
    const bool is_plain = b != 0 && b != -1;
    const double quotient = static_cast<double>(a) / static_cast<double>(is_plain ? b : 1);
    const auto cut = static_cast<int32_t>(quotient);
    return b == 0 ? -1 : b == -1 ? ops::Neg::apply(a) : cut;
  }
};
struct Remainder {
  static int32_t apply(int32_t a, int32_t b) {
    const int32_t product = ops::Mul::apply(Quotient::apply(a, b), b);
    return b == 0 ? a : ops::Sub::apply(a, product);
  }
};

// How columns compute an operation.
template <class F, class T>
using InColumns = std::conditional_t<
    std::is_same_v<T, int32_t> && std::is_same_v<F, ops::Div>, Quotient,
    std::conditional_t<std::is_same_v<T, int32_t> && std::is_same_v<F, ops::Rem>, Remainder, F>>;

template <class F, class T, class W, bool kImmediate>
struct Binary {
  JAXREC_RUN void run(W* out, const W* a, const W* b, W immediate, int32_t n) {
    const T right = from_element<T>(immediate);
    JAXREC_VECTOR
    for (int32_t i = 0; i < (n & -kColumnStep); ++i)
      put(out, i, F::apply(get<T>(a, i), kImmediate ? right : get<T>(b, i)));
  }
};

template <class F, class T, class W>
struct Unary {
  JAXREC_RUN void run(W* out, const W* a, const W*, W, int32_t n) {
    JAXREC_VECTOR
    for (int32_t i = 0; i < (n & -kColumnStep); ++i) put(out, i, F::apply(get<T>(a, i)));
  }
};

template <class To>
struct Convert {
  template <class From>
  static To apply(From x) {
    return ops::convert<To>(x);
  }
};

template <class W>
struct Blend {
  JAXREC_RUN void run(W* to, const W* from, const W* mask, int32_t n) {
    JAXREC_VECTOR
    for (int32_t i = 0; i < (n & -kColumnStep); ++i)
      to[i] = (mask[i] & from[i]) | (~mask[i] & to[i]);
  }
};

template <class W>
struct Select {
  JAXREC_RUN void run(W* out, const W* which, const W* yes, const W* no, int32_t n) {
    JAXREC_VECTOR
    for (int32_t i = 0; i < (n & -kColumnStep); ++i) out[i] = which[i] != 0 ? yes[i] : no[i];
  }
};

template <class W>
struct Wrap {
  JAXREC_RUN void run(W* out, const W* index, W size, int32_t n) {
    JAXREC_VECTOR
    for (int32_t i = 0; i < (n & -kColumnStep); ++i) out[i] = index[i] + (index[i] < 0 ? size : 0);
  }
};

template <class W>
struct Count {
  JAXREC_RUN W run(const W* test, const W* mask, int32_t n) {
    W count = 0;
    for (int32_t i = 0; i < (n & -kColumnStep); ++i) count += test[i] != 0 ? mask[i] : 0;
    return -count;
  }
};

template <class W>
struct Part {
  JAXREC_RUN void run(W* keys, const W* test, const W* mask, W yes, W no, int32_t n) {
    JAXREC_VECTOR
    for (int32_t i = 0; i < (n & -kColumnStep); ++i)
      keys[i] = mask[i] != 0 ? (test[i] != 0 ? yes : no) : keys[i];
  }
};

template <class W>
struct Largest {
  JAXREC_RUN W run(const W* keys, int32_t n) {
    W largest = 0;
    for (int32_t i = 0; i < (n & -kColumnStep); ++i)
      largest = keys[i] > largest ? keys[i] : largest;
    return largest;
  }
};

template <class W>
struct Step {
  JAXREC_RUN void run(W* counts, const W* mask, int32_t n) {
    JAXREC_VECTOR
    for (int32_t i = 0; i < (n & -kColumnStep); ++i) counts[i] -= mask[i];
  }
};

template <class W>
struct Locate {
  JAXREC_RUN bool run(int64_t* places, const W* index, const W* mask, int64_t size, int32_t n) {
    W outside = 0;
    const W last = static_cast<W>(std::min<int64_t>(size, std::numeric_limits<W>::max()) - 1);
    JAXREC_VECTOR
    for (int32_t i = 0; i < (n & -kColumnStep); ++i) {
      const W at = index[i] & mask[i];
      outside |= (at < 0 || at > last) ? -1 : 0;
      places[i] = places[i] * size + at;
    }
    return outside == 0 && size > 0;
  }
};

template <class W>
struct Gather {
  typedef W Element __attribute__((may_alias));
  JAXREC_RUN void run(W* out, const void* data, const int64_t* places, int32_t n) {
    const auto* elements = static_cast<const Element*>(data);
    JAXREC_VECTOR
    for (int32_t i = 0; i < (n & -kColumnStep); ++i) out[i] = elements[places[i]];
  }
};

template <class W>
struct Choose {
  JAXREC_RUN Chosen<W> run(W* mask, const W* keys, W key, W bound, int32_t n) {
    W count = 0, at_least = 0, next = 0;
    JAXREC_VECTOR
    for (int32_t i = 0; i < (n & -kColumnStep); ++i) {
      mask[i] = keys[i] == key ? -1 : 0;
      count -= mask[i];
      at_least += keys[i] >= bound ? 1 : 0;
      const W below = keys[i] < key ? keys[i] : 0;
      next = below > next ? below : next;
    }
    return {count, at_least, next};
  }
};

template <class Op, class R, class... Args>
R plain(Args... args) {
  return Op::run(args...);
}

#ifdef JAXREC_AVX2
template <class Op, class R, class... Args>
[[gnu::target("avx2")]] R with_avx2(Args... args) {
  return Op::run(args...);
}
#endif

template <class Op, class R, class... Args>
void pick(R (*&to)(Args...), bool avx2) {
  to = &plain<Op, R, Args...>;
#ifdef JAXREC_AVX2
  if (avx2) to = &with_avx2<Op, R, Args...>;
#endif
  (void)avx2;
}

template <class Op, class W>
ColumnFn<W> for_processor(bool avx2) {
  ColumnFn<W> picked;
  pick<Op>(picked, avx2);
  return picked;
}

template <class F, class T, class W, bool kCompares, bool kImmediate>
ColumnFn<W> binary(bool avx2) {
  if constexpr (kFits<T, W, kCompares>)
    return for_processor<Binary<InColumns<F, T>, T, W, kImmediate>, W>(avx2);
  else return nullptr;
}

// What a program's functions of words are in columns.
template <class W>
class Table {
 public:
  using Unaries = std::vector<std::pair<UnaryFn, ColumnFn<W>>>;
  using Binaries = std::vector<std::pair<BinaryFn, ColumnFn<W>>>;

  Table(bool avx2, Unaries& unary, Binaries& binary) : avx2_(avx2), unary_(unary), binary_(binary) {
    numbers<int32_t>();
    numbers<float>();
    if constexpr (kIsWhole) {
      numbers<int64_t>();
      numbers<double>();
    }
    integers<uint32_t>();
    add<ops::Not, bool>(Op::NOT);
    add<ops::Not, int32_t>(Op::NOT);
    join<ops::And, bool>(Op::AND);
    join<ops::Or, bool>(Op::OR);
    join<ops::Xor, bool>(Op::XOR);
  }

 private:
  static constexpr bool kIsWhole = sizeof(W) == sizeof(Word);

  template <class T>
  static constexpr DType kType = std::is_same_v<T, bool>       ? DType::kBool
                                 : std::is_same_v<T, int32_t>  ? DType::kI32
                                 : std::is_same_v<T, uint32_t> ? DType::kU32
                                 : std::is_same_v<T, int64_t>  ? DType::kI64
                                 : std::is_same_v<T, float>    ? DType::kF32
                                                               : DType::kF64;

  template <class T>
  void numbers() {
    add<ops::Neg, T>(Op::NEG);
    add<ops::Abs, T>(Op::ABS);
    add<ops::Sign, T>(Op::SIGN);
    if constexpr (std::is_floating_point_v<T>) {
      add<ops::Sqrt, T>(Op::SQRT);
      add<ops::Floor, T>(Op::FLOOR);
      add<ops::Ceil, T>(Op::CEIL);
      add<ops::IsFinite, T>(Op::IS_FINITE);
    }
    convert<T, bool>();
    convert<T, int32_t>();
    convert<T, uint32_t>();
    convert<T, float>();
    if constexpr (kIsWhole) {
      convert<T, int64_t>();
      convert<T, double>();
    }
  }

  // Those of an integer type without instructions.
  template <class T>
  void integers() {
    add<ops::Not, T>(Op::NOT);
    convert<T, bool>();
    convert<T, int32_t>();
#define JAXREC_JOIN(op, f, d, t) join<ops::f, T>(Op::op);
    JAXREC_HOT_INT(JAXREC_JOIN, _, _)
    JAXREC_HOT_COMPARE_OF(JAXREC_JOIN, _, _)
#undef JAXREC_JOIN
  }

  template <class To, class From>
  void convert() {
    if constexpr (!std::is_same_v<To, From>)
      unary_.emplace_back(convert_op(kType<To>, kType<From>),
                          for_processor<Unary<Convert<To>, From, W>, W>(avx2_));
  }

  template <class F, class T>
  void add(Op op) {
    unary_.emplace_back(unary_op(op, kType<T>), for_processor<Unary<F, T, W>, W>(avx2_));
  }

  template <class F, class T>
  void join(Op op) {
    binary_.emplace_back(binary_op(op, kType<T>), for_processor<Binary<F, T, W, false>, W>(avx2_));
  }

  const bool avx2_;
  Unaries& unary_;
  Binaries& binary_;
};

constexpr int kNumComparing = static_cast<int>(kFirstLoad) - static_cast<int>(kFirstBranch);

}  // namespace

template <class W>
Columns<W>::Columns(bool avx2)
    : instructions_{
#define JAXREC_OP(op, f, d, t) \
  binary<ops::f, t, W, false, false>(avx2), binary<ops::f, t, W, false, true>(avx2),
#define JAXREC_COMPARE(op, f, d, t) \
  binary<ops::f, t, W, true, false>(avx2), binary<ops::f, t, W, true, true>(avx2),
          JAXREC_HOT_ARITHMETIC(JAXREC_OP) JAXREC_HOT_COMPARE(JAXREC_COMPARE)
#undef JAXREC_OP
#undef JAXREC_COMPARE
      } {
  Table<W>(avx2, unary_, binary_);
  pick<Blend<W>>(blend, avx2);
  pick<Select<W>>(select, avx2);
  pick<Wrap<W>>(wrap, avx2);
  pick<Count<W>>(count, avx2);
  pick<Part<W>>(part, avx2);
  pick<Largest<W>>(largest, avx2);
  pick<Choose<W>>(choose, avx2);
  pick<Step<W>>(step, avx2);
  pick<Locate<W>>(locate, avx2);
  pick<Gather<W>>(gather, avx2);
}

template <class W>
bool Columns<W>::has_avx2() {
#ifdef JAXREC_AVX2
  return __builtin_cpu_supports("avx2") != 0;
#else
  return false;
#endif
}

template <class W>
const Columns<W>& Columns<W>::best() {
  static const Columns columns(has_avx2());
  return columns;
}

template <class W>
ColumnFn<W> Columns<W>::of(MachineOp op) const {
  int at = static_cast<int>(op) - static_cast<int>(kFirstArithmetic);
  if (is_compare_branch(op)) at -= kNumComparing;  // comparisons stand last, in the same order
  return instructions_[at];
}

template class Columns<int32_t>;
template class Columns<int64_t>;

}  // namespace jaxrec::native
