// Each operation is a type with an `apply`; tables of function pointers are made from them, so the
// machine dispatches once, at decoding, on (operation, element type).
#include "core/arith.h"

#include <cmath>
#include <limits>

namespace jaxrec {
namespace {

template <class T>
inline constexpr bool kIsBool = std::is_same_v<T, bool>;
template <class T>
inline constexpr bool kIsFloat = std::is_floating_point_v<T>;
template <class T>
inline constexpr bool kIsInt = !kIsBool<T> && !kIsFloat<T>;

// What an operation takes.
struct Numbers {
  template <class T>
  static constexpr bool takes = !kIsBool<T>;
};
struct Floats {
  template <class T>
  static constexpr bool takes = kIsFloat<T>;
};
struct Ints {
  template <class T>
  static constexpr bool takes = kIsInt<T>;
};
struct Bits {
  template <class T>
  static constexpr bool takes = !kIsFloat<T>;
};
struct Anything {
  template <class T>
  static constexpr bool takes = true;
};

// Integers compute in 64 unsigned bits and are cut back: wrapping without undefined behaviour.
template <class T>
uint64_t wide(T value) {
  return static_cast<uint64_t>(value);
}
template <class T>
std::make_unsigned_t<T> bits_of(T value) {
  return static_cast<std::make_unsigned_t<T>>(value);
}
template <class T>
inline constexpr int kBits = 8 * sizeof(T);

struct Neg : Numbers {
  template <class T>
  static T apply(T x) {
    if constexpr (kIsFloat<T>) return -x;
    else return static_cast<T>(0 - wide(x));
  }
};
struct Not : Bits {
  template <class T>
  static T apply(T x) {
    if constexpr (kIsBool<T>) return !x;
    else return static_cast<T>(~wide(x));
  }
};
struct Abs : Numbers {
  template <class T>
  static T apply(T x) {
    if constexpr (kIsFloat<T>) return std::fabs(x);
    else return x < 0 ? Neg::apply(x) : x;
  }
};
struct Sign : Numbers {
  template <class T>
  static T apply(T x) {
    if (x > T(0)) return T(1);
    if (x < T(0)) return static_cast<T>(-1);
    return x;  // keeps -0.0 and NaN
  }
};
struct Sqrt : Floats {
  template <class T>
  static T apply(T x) { return std::sqrt(x); }
};
struct Floor : Floats {
  template <class T>
  static T apply(T x) { return std::floor(x); }
};
struct Ceil : Floats {
  template <class T>
  static T apply(T x) { return std::ceil(x); }
};
struct Round : Floats {
  template <class T>
  static T apply(T x) { return std::round(x); }
};
struct RoundEven : Floats {
  template <class T>
  static T apply(T x) { return std::nearbyint(x); }
};
struct IsFinite : Floats {
  template <class T>
  static bool apply(T x) { return std::isfinite(x); }
};
struct Popcnt : Ints {
  template <class T>
  static T apply(T x) {
    int count = 0;
    for (auto bits = bits_of(x); bits != 0; bits &= bits - 1) ++count;
    return static_cast<T>(count);
  }
};
struct Clz : Ints {
  template <class T>
  static T apply(T x) {
    int count = kBits<T>;
    for (uint64_t bits = bits_of(x); bits != 0; bits >>= 1) --count;
    return static_cast<T>(count);
  }
};

struct Add : Numbers {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (kIsFloat<T>) return a + b;
    else return static_cast<T>(wide(a) + wide(b));
  }
};
struct Sub : Numbers {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (kIsFloat<T>) return a - b;
    else return static_cast<T>(wide(a) - wide(b));
  }
};
struct Mul : Numbers {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (kIsFloat<T>) return a * b;
    else return static_cast<T>(wide(a) * wide(b));
  }
};
struct Div : Numbers {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (kIsFloat<T>) return a / b;
    else if (b == 0) return static_cast<T>(-1);
    else if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Neg::apply(a);
    else return static_cast<T>(a / b);
  }
};
struct Rem : Numbers {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (kIsFloat<T>) return std::fmod(a, b);
    else if (b == 0) return a;
    else if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    else return static_cast<T>(a % b);
  }
};
struct Min : Anything {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (kIsFloat<T>) {
      if (std::isnan(a) || std::isnan(b)) return a + b;
      if (a == b) return std::signbit(a) ? a : b;
    }
    return a < b ? a : b;
  }
};
struct Max : Anything {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (kIsFloat<T>) {
      if (std::isnan(a) || std::isnan(b)) return a + b;
      if (a == b) return std::signbit(a) ? b : a;
    }
    return a > b ? a : b;
  }
};
struct And : Bits {
  template <class T>
  static T apply(T a, T b) { return static_cast<T>(a & b); }
};
struct Or : Bits {
  template <class T>
  static T apply(T a, T b) { return static_cast<T>(a | b); }
};
struct Xor : Bits {
  template <class T>
  static T apply(T a, T b) { return static_cast<T>(a ^ b); }
};
// A shift by the width or more (a negative amount is one, read as unsigned) empties the value.
struct Shl : Ints {
  template <class T>
  static T apply(T a, T b) { return bits_of(b) >= kBits<T> ? 0 : static_cast<T>(wide(a) << bits_of(b)); }
};
struct ShiftLogical : Ints {
  template <class T>
  static T apply(T a, T b) { return bits_of(b) >= kBits<T> ? 0 : static_cast<T>(bits_of(a) >> bits_of(b)); }
};
struct ShiftArithmetic : Ints {
  template <class T>
  static T apply(T a, T b) {
    const auto value = static_cast<std::make_signed_t<T>>(a);  // also for unsigned types, as in XLA
    const int amount = bits_of(b) >= kBits<T> ? kBits<T> - 1 : static_cast<int>(b);
    return static_cast<T>(value >> amount);
  }
};
struct Pow : Ints {
  template <class T>
  static T apply(T base, T exponent) {
    if (exponent < T(0)) return reciprocal(base, exponent);
    uint64_t result = 1, square = wide(base);
    for (uint64_t n = bits_of(exponent); n != 0; n >>= 1, square *= square)
      if (n & 1) result *= square;
    return static_cast<T>(result);
  }
  // 1 / base^n cut to an integer: nothing is left of it unless the base is 1 or -1.
  template <class T>
  static T reciprocal(T base, T exponent) {
    if (base == T(1)) return T(1);
    if (base == static_cast<T>(-1)) return (exponent & 1) ? base : T(1);
    return T(0);
  }
};
struct Eq : Anything {
  template <class T>
  static bool apply(T a, T b) { return a == b; }
};
struct Ne : Anything {
  template <class T>
  static bool apply(T a, T b) { return a != b; }
};
struct Lt : Anything {
  template <class T>
  static bool apply(T a, T b) { return a < b; }
};
struct Le : Anything {
  template <class T>
  static bool apply(T a, T b) { return a <= b; }
};
struct Gt : Anything {
  template <class T>
  static bool apply(T a, T b) { return a > b; }
};
struct Ge : Anything {
  template <class T>
  static bool apply(T a, T b) { return a >= b; }
};

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

// Float to integer saturates and sends NaN to 0; every other conversion is C++'s.
template <class To, class From>
To convert(From x) {
  if constexpr (kIsBool<To>) {
    return x != From(0);
  } else if constexpr (kIsFloat<From> && kIsInt<To>) {
    // The bounds are powers of two (or 0), so they are exact as floats.
    const From low = static_cast<From>(std::numeric_limits<To>::min());
    const From high = std::ldexp(From(1), std::numeric_limits<To>::digits);
    if (std::isnan(x)) return 0;
    if (x <= low) return std::numeric_limits<To>::min();
    if (x >= high) return std::numeric_limits<To>::max();
    return static_cast<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

template <class To, class From>
Word convert_word(Word word) {
  return to_word(convert<To>(from_word<From>(word)));
}

}  // namespace

UnaryFn unary_op(Op op, DType dtype) {
  switch (op) {
    case Op::NEG: return pick_unary<Neg>(dtype);
    case Op::NOT: return pick_unary<Not>(dtype);
    case Op::ABS: return pick_unary<Abs>(dtype);
    case Op::SIGN: return pick_unary<Sign>(dtype);
    case Op::SQRT: return pick_unary<Sqrt>(dtype);
    case Op::FLOOR: return pick_unary<Floor>(dtype);
    case Op::CEIL: return pick_unary<Ceil>(dtype);
    case Op::ROUND: return pick_unary<Round>(dtype);
    case Op::ROUND_EVEN: return pick_unary<RoundEven>(dtype);
    case Op::IS_FINITE: return pick_unary<IsFinite>(dtype);
    case Op::POPCNT: return pick_unary<Popcnt>(dtype);
    case Op::CLZ: return pick_unary<Clz>(dtype);
    default: return nullptr;
  }
}

BinaryFn binary_op(Op op, DType dtype) {
  switch (op) {
    case Op::ADD: return pick_binary<Add>(dtype);
    case Op::SUB: return pick_binary<Sub>(dtype);
    case Op::MUL: return pick_binary<Mul>(dtype);
    case Op::DIV: return pick_binary<Div>(dtype);
    case Op::REM: return pick_binary<Rem>(dtype);
    case Op::MIN: return pick_binary<Min>(dtype);
    case Op::MAX: return pick_binary<Max>(dtype);
    case Op::AND: return pick_binary<And>(dtype);
    case Op::OR: return pick_binary<Or>(dtype);
    case Op::XOR: return pick_binary<Xor>(dtype);
    case Op::SHL: return pick_binary<Shl>(dtype);
    case Op::SHRA: return pick_binary<ShiftArithmetic>(dtype);
    case Op::SHRL: return pick_binary<ShiftLogical>(dtype);
    case Op::POW: return pick_binary<Pow>(dtype);
    case Op::EQ: return pick_binary<Eq>(dtype);
    case Op::NE: return pick_binary<Ne>(dtype);
    case Op::LT: return pick_binary<Lt>(dtype);
    case Op::LE: return pick_binary<Le>(dtype);
    case Op::GT: return pick_binary<Gt>(dtype);
    case Op::GE: return pick_binary<Ge>(dtype);
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

Word load_element(const void* data, DType dtype, int64_t index) {
  return with_type(dtype, [=](auto tag) {
    using T = typename decltype(tag)::type;
    return to_word(static_cast<const T*>(data)[index]);
  });
}

void store_element(void* data, DType dtype, int64_t index, Word word) {
  with_type(dtype, [=](auto tag) {
    using T = typename decltype(tag)::type;
    static_cast<T*>(data)[index] = from_word<T>(word);
  });
}

}  // namespace jaxrec
