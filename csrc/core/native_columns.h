// Operations on columns: one register of all lanes that run in lockstep (native_gang.h).
//
// An element is a word of the machine (arith.h), or its low half in a program that has no types of
// 64 bits. Extended again, a half is as good as the word was: an operation reads what its type has.
//
// A mask is a column whose elements have all bits where it is set, otherwise none.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/native_program.h"

namespace jaxrec::native {

/// Columns have a multiple of so many elements.
inline constexpr int32_t kColumnStep = 8;

/// out[i] = a[i] op b[i], or op `immediate`, or op(a[i]), for i < n; `out` may be `a` or `b`.
template <class W>
using ColumnFn = void (*)(W* out, const W* a, const W* b, W immediate, int32_t n);

/// How many keys are the chosen one, how many are at least a bound, and the largest below it.
template <class W>
struct Chosen {
  W count, at_least, next;
};

/// What a processor does to columns. W: int32_t for halves of words, int64_t for whole ones.
template <class W>
class Columns {
 public:
  /// With vectors of 256 bits, which the processor must have, or with those that all have.
  explicit Columns(bool avx2);

  /// For the processor that runs this.
  static const Columns& best();
  static bool has_avx2();

  /// What runs an instruction of arithmetic, or the comparison in one that branches.
  ColumnFn<W> of(MachineOp op) const;

  /// What does the same as a function of words; null if nothing but this function does.
  ColumnFn<W> of(UnaryFn scalar) const { return find(unary_, scalar); }
  ColumnFn<W> of(BinaryFn scalar) const { return find(binary_, scalar); }

  /// to[i] = from[i] where the mask is set.
  void (*blend)(W* to, const W* from, const W* mask, int32_t n);
  /// out[i] = yes[i] or no[i].
  void (*select)(W* out, const W* which, const W* yes, const W* no, int32_t n);
  /// out[i] = index[i], from the end if it is below 0.
  void (*wrap)(W* out, const W* index, W size, int32_t n);
  /// In how many places where the mask is set a test is not 0.
  W (*count)(const W* test, const W* mask, int32_t n);
  /// keys[i] = one of two, as a test says, where the mask is set.
  void (*part)(W* keys, const W* test, const W* mask, W yes, W no, int32_t n);
  /// The largest key, or 0.
  W (*largest)(const W* keys, int32_t n);
  /// Sets the mask where a key is the given one.
  Chosen<W> (*choose)(W* mask, const W* keys, W key, W bound, int32_t n);
  /// counts[i] += 1 where the mask is set.
  void (*step)(W* counts, const W* mask, int32_t n);
  /// places[i] = places[i] * size + index[i] where the mask is set. False: an index is out of
  /// range.
  bool (*locate)(int64_t* places, const W* index, const W* mask, int64_t size, int32_t n);
  /// out[i] = data[places[i]], of elements of the size of W.
  void (*gather)(W* out, const void* data, const int64_t* places, int32_t n);

 private:
  template <class Fn>
  using Known = std::vector<std::pair<Fn, ColumnFn<W>>>;

  template <class Fn>
  static ColumnFn<W> find(const Known<Fn>& known, Fn scalar) {
    for (const auto& [fn, column] : known)
      if (fn == scalar) return column;
    return nullptr;
  }

  std::vector<ColumnFn<W>> instructions_;  // of arithmetic, and then comparisons
  Known<UnaryFn> unary_;                   // that programs use much and that have no instruction
  Known<BinaryFn> binary_;
};

/// The element that stands for a word, and the value of an element.
template <class W>
W to_element(Word word) {
  return static_cast<W>(word);
}
template <class T, class W>
T from_element(W element) {
  return from_word<T>(static_cast<Word>(element));
}

}  // namespace jaxrec::native
