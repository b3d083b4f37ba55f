// The operations of the control machine, each a type with an `apply` and with the types it takes.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace jaxrec::ops {

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
  static T apply(T x) {
    return std::sqrt(x);
  }
};
struct Floor : Floats {
  template <class T>
  static T apply(T x) {
    return std::floor(x);
  }
};
struct Ceil : Floats {
  template <class T>
  static T apply(T x) {
    return std::ceil(x);
  }
};
struct Round : Floats {
  template <class T>
  static T apply(T x) {
    return std::round(x);
  }
};
struct RoundEven : Floats {
  template <class T>
  static T apply(T x) {
    return std::nearbyint(x);
  }
};
struct IsFinite : Floats {
  template <class T>
  static bool apply(T x) {
    return std::isfinite(x);
  }
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
/// A product and a quotient that are zero where the first number is: it is a tangent, and what does
/// not move has no derivative, were it to be multiplied by infinity.
struct Multiple : Floats {
  template <class T>
  static T apply(T tangent, T b) {
    return tangent == 0 ? tangent : tangent * b;
  }
};
struct Portion : Floats {
  template <class T>
  static T apply(T tangent, T b) {
    return tangent == 0 ? tangent : tangent / b;
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
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or : Bits {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor : Bits {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
// A shift by the width or more (a negative amount is one, read as unsigned) empties the value.
struct Shl : Ints {
  template <class T>
  static T apply(T a, T b) {
    return bits_of(b) >= kBits<T> ? 0 : static_cast<T>(wide(a) << bits_of(b));
  }
};
struct ShiftLogical : Ints {
  template <class T>
  static T apply(T a, T b) {
    return bits_of(b) >= kBits<T> ? 0 : static_cast<T>(bits_of(a) >> bits_of(b));
  }
};
struct ShiftArithmetic : Ints {
  template <class T>
  static T apply(T a, T b) {
    const auto value = static_cast<std::make_signed_t<T>>(a);  // also for unsigned types, as in XLA
    const int amount = bits_of(b) >= kBits<T> ? kBits<T> - 1 : static_cast<int>(b);
    return static_cast<T>(value >> amount);
  }
};
struct Eq : Anything {
  template <class T>
  static bool apply(T a, T b) {
    return a == b;
  }
};
struct Ne : Anything {
  template <class T>
  static bool apply(T a, T b) {
    return a != b;
  }
};
struct Lt : Anything {
  template <class T>
  static bool apply(T a, T b) {
    return a < b;
  }
};
struct Le : Anything {
  template <class T>
  static bool apply(T a, T b) {
    return a <= b;
  }
};
struct Gt : Anything {
  template <class T>
  static bool apply(T a, T b) {
    return a > b;
  }
};
struct Ge : Anything {
  template <class T>
  static bool apply(T a, T b) {
    return a >= b;
  }
};

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

}  // namespace jaxrec::ops
