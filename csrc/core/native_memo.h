// Calls of memoised functions and their results, found by their arguments.
#pragma once

#include <cstdint>
#include <vector>

#include "core/arith.h"

namespace jaxrec::native {

/// An open-addressing hash table. A call is open until it returns.
class Memo {
 public:
  /// Where a call stands. Later calls may move what stands there.
  struct Call {
    int64_t at;
    bool is_new;
  };

  /// Forgets everything.
  void clear();

  /// Finds a call, or begins it.
  Call find_or_open(int32_t function, const Word* args, size_t num_args, size_t num_results);

  bool is_open(int64_t call) const { return (words_[call] & kOpen) != 0; }
  void close(int64_t call) { words_[call] &= ~kOpen; }
  Word* results(int64_t call) { return words_.data() + call + 1 + (words_[call] >> kArgsAt); }

 private:
  // The first word of a call: its function, whether it is open, and how many arguments come behind
  // it. Its results come last.
  static constexpr int kArgsAt = 33;
  static constexpr Word kOpen = Word{1} << 32;

  struct Slot {
    uint16_t round = 0;  // what an earlier one has filled is free
    uint16_t tag = 0;    // of the call's hash
    uint32_t call = 0;
  };

  void grow();

  std::vector<Slot> slots_;  // a power of two of them
  std::vector<Word> words_;  // of all calls
  size_t size_ = 0;
  uint16_t round_ = 1;
};

}  // namespace jaxrec::native
