// A set of small numbers that gives up its least one.
#pragma once

#include <cstdint>
#include <vector>

namespace jaxrec {

/// Numbers below a bound, as a tree of bitmaps: a bit of a level says whether 64 bits below it have
/// any. Adding and taking cost a step a level, three for a quarter of a million numbers.
class ReadySet {
 public:
  explicit ReadySet(int32_t bound) {
    do {
      bound = (bound + 63) / 64;
      levels_.emplace_back(bound, 0);
    } while (bound > 1);
  }

  bool empty() const { return size_ == 0; }
  int32_t size() const { return size_; }

  void add(int32_t number) {
    ++size_;
    for (std::vector<uint64_t>& level : levels_) {
      uint64_t& word = level[number >> 6];
      const bool known = word != 0;
      word |= uint64_t{1} << (number & 63);
      if (known) return;
      number >>= 6;
    }
  }

  /// The least number; the set must not be empty.
  int32_t least() const {
    int32_t number = 0;
    for (size_t i = levels_.size(); i > 0; --i)
      number = number << 6 | __builtin_ctzll(levels_[i - 1][number]);
    return number;
  }

  /// Takes the least number out.
  int32_t take() {
    const int32_t out = least();
    int32_t number = out;
    --size_;
    for (std::vector<uint64_t>& level : levels_) {
      uint64_t& word = level[number >> 6];
      word &= word - 1;  // it is the lowest bit
      if (word != 0) break;
      number >>= 6;
    }
    return out;
  }

 private:
  std::vector<std::vector<uint64_t>> levels_;  // the numbers first
  int32_t size_ = 0;
};

}  // namespace jaxrec
