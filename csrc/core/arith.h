// Arithmetic of control values, with XLA's results bit for bit; see library_ops.h for what has
// others.
//
// A register is a 64-bit word. Signed integers stand sign-extended, unsigned ones zero-extended,
// booleans as 0 or 1, float32 as its bits in the low half, float64 as its bits.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/dtype.h"
#include "core/opcode.h"

namespace jaxrec {

using Word = int64_t;
using UnaryFn = Word (*)(Word);
using BinaryFn = Word (*)(Word, Word);

template <class T>
T from_word(Word word) {
  if constexpr (std::is_floating_point_v<T>) {
    T value;
    std::memcpy(&value, &word, sizeof(T));  // the low bytes: little-endian hosts only, as XLA's CPU
    return value;
  } else if constexpr (std::is_same_v<T, bool>) {
    return word != 0;
  } else {
    return static_cast<T>(word);
  }
}

template <class T>
Word to_word(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    Word word = 0;
    std::memcpy(&word, &value, sizeof(T));
    return word;
  } else {
    return static_cast<Word>(value);
  }
}

/// The function of an operation on a type; null when the operation does not take that type.
UnaryFn unary_op(Op op, DType dtype);
BinaryFn binary_op(Op op, DType dtype);
UnaryFn convert_op(DType to, DType from);

/// Element `index` of an array as a word.
Word load_element(const void* data, DType dtype, int64_t index);

/// The same for arrays of one type, for loops.
using LoadFn = Word (*)(const void* data, int64_t index);
LoadFn load_fn(DType dtype);

/// Writes a word as element `index` of an array.
void store_element(void* data, DType dtype, int64_t index, Word word);

}  // namespace jaxrec
