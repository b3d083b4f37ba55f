// Functions of floating numbers as the C library computes them, to the last bit or two.
//
// XLA has approximations of its own, so a program that the native machine runs wholly may use
// these, and a schedule may not: what it decides must be what cells compute.
#pragma once

#include <cmath>

#include "core/arith_ops.h"

namespace jaxrec::ops {

#define JAXREC_LIBRARY(name, function) \
  struct name : Floats {               \
    template <class T>                 \
    static T apply(T x) {              \
      return std::function(x);         \
    }                                  \
  };
JAXREC_LIBRARY(Exp, exp)
JAXREC_LIBRARY(Exp2, exp2)
JAXREC_LIBRARY(Expm1, expm1)
JAXREC_LIBRARY(Log, log)
JAXREC_LIBRARY(Log1p, log1p)
JAXREC_LIBRARY(Cbrt, cbrt)
JAXREC_LIBRARY(Sin, sin)
JAXREC_LIBRARY(Cos, cos)
JAXREC_LIBRARY(Tan, tan)
JAXREC_LIBRARY(Asin, asin)
JAXREC_LIBRARY(Acos, acos)
JAXREC_LIBRARY(Atan, atan)
JAXREC_LIBRARY(Sinh, sinh)
JAXREC_LIBRARY(Cosh, cosh)
JAXREC_LIBRARY(Tanh, tanh)
JAXREC_LIBRARY(Asinh, asinh)
JAXREC_LIBRARY(Acosh, acosh)
JAXREC_LIBRARY(Atanh, atanh)
JAXREC_LIBRARY(Erf, erf)
JAXREC_LIBRARY(Erfc, erfc)
#undef JAXREC_LIBRARY

struct Rsqrt : Floats {
  template <class T>
  static T apply(T x) {
    return T(1) / std::sqrt(x);
  }
};
struct Logistic : Floats {
  template <class T>
  static T apply(T x) {
    return T(1) / (T(1) + std::exp(-x));
  }
};
struct Pow : Floats {
  template <class T>
  static T apply(T x, T y) {
    return std::pow(x, y);
  }
};
struct Atan2 : Floats {
  template <class T>
  static T apply(T y, T x) {
    return std::atan2(y, x);
  }
};

}  // namespace jaxrec::ops
