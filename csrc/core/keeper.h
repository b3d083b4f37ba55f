// Which rows of a stepped run may be written again.
//
// Who will read a value of a stepped program is not known, but who could: frames that have it in a
// slot, firings that wait and have it as an input, and whoever gets it as the result of a call,
// which is a slot of the caller. All these hold the value. The block of a wave is free again when
// none of its values is held.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/pending.h"
#include "core/reuse.h"

namespace jaxrec {

class Keeper {
 public:
  Keeper(int32_t classes, int32_t pad, Pending& values)
      : values_(values), pools_(classes, RowPool(pad)) {}

  /// Behind the last row of a class that was ever taken.
  int32_t end(int32_t tape_class) const { return pools_[tape_class].end(); }

  void hold(int32_t value) { ++entry(values_.find(value)).holds; }

  void drop(int32_t value) {
    Entry& entry = this->entry(values_.find(value));
    if (--entry.holds == 0 && entry.block != kNone) leave(entry.block);
  }

  /// Whoever holds a value is to hold another one; called before they are joined.
  void join(int32_t value, int32_t with) {
    value = values_.find(value);
    with = values_.find(with);
    if (value == with) return;
    const int32_t holds = std::exchange(entry(value).holds, 0);
    entry(with).holds += holds;
  }

  /// Rows for values that are made next; the number of their block.
  int32_t take(int32_t tape_class, int32_t rows) {
    if (free_.empty()) {
      free_.push_back(static_cast<int32_t>(blocks_.size()));
      blocks_.emplace_back();
    }
    const int32_t block = free_.back();
    free_.pop_back();
    blocks_[block] = {tape_class, pools_[tape_class].take(rows), rows, 1};
    return block;
  }

  int32_t start(int32_t block) const { return blocks_[block].start; }

  /// Says that a value is made in a block.
  void made(int32_t value, int32_t block) {
    Entry& entry = this->entry(values_.find(value));
    entry.block = block;
    if (entry.holds > 0) ++blocks_[block].held;
  }

  /// Says that all values of a block are made; before, it is not given back.
  void settle(int32_t block) { leave(block); }

 private:
  static constexpr int32_t kNone = -1;

  struct Entry {  // of a value
    int32_t holds = 0;
    int32_t block = kNone;  // once it is made
  };
  struct Block {
    int32_t tape_class = 0, start = 0, rows = 0;
    int32_t held = 0;  // of its values; and 1 until it is settled
  };

  Entry& entry(int32_t value) {
    if (static_cast<size_t>(value) >= entries_.size()) entries_.resize(values_.size());
    return entries_[value];
  }

  void leave(int32_t block) {
    const Block& done = blocks_[block];
    if (--blocks_[block].held > 0) return;
    pools_[done.tape_class].give_back(done.start, done.rows);
    free_.push_back(block);
  }

  Pending& values_;
  std::vector<RowPool> pools_;  // a class
  std::vector<Entry> entries_;
  std::vector<Block> blocks_;
  std::vector<int32_t> free_;  // numbers of blocks
};

}  // namespace jaxrec
