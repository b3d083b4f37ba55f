// Calls of memoised functions and their results, found by their arguments.
#pragma once

#include <cstdint>
#include <vector>

#include "core/arith.h"

namespace jaxrec::native {

/// An open-addressing hash table. An entry is made when a call begins and is open until it returns.
class Memo {
 public:
  static constexpr int64_t kNone = -1;

  /// Forgets everything.
  void clear();

  /// The entry of a call, or kNone.
  int64_t find(int32_t function, const Word* args, size_t num_args) const;

  /// A new, open entry for a call that has none.
  int64_t open(int32_t function, const Word* args, size_t num_args, size_t num_results);

  bool is_open(int64_t entry) const { return entries_[entry].open; }
  void close(int64_t entry) { entries_[entry].open = false; }
  Word* results(int64_t entry) { return words_.data() + entries_[entry].results; }

 private:
  struct Entry {
    uint64_t hash;
    int64_t args;     // in words_
    int64_t results;  // likewise
    int32_t function;
    bool open;
  };

  size_t slot(uint64_t hash, int32_t function, const Word* args, size_t num_args) const;
  void rehash(size_t size);

  std::vector<int64_t> slots_;  // entries, or kNone; a power of two of them
  std::vector<Entry> entries_;
  std::vector<Word> words_;
};

}  // namespace jaxrec::native
