// Where the lanes of a gang stand, and which of them run next: see native_gang.h.
//
// Lanes that run stand at one place, an instruction at a depth of calls. The others wait at places
// of their own, each noted as a key: the deeper and the earlier, the greater.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/native_columns.h"

namespace jaxrec::native {

template <class W>
class Standing {
 public:
  static constexpr int32_t kPcs = 1 << 16;  // instructions of a program, at most

  Standing(const Columns<W>& ops, int32_t width)
      : ops_(ops), width_(width), mask_(width), keys_(width) {}

  // Of the lanes that run:
  int32_t depth = 1, pc = 0;
  int32_t count = 0;
  bool apart = true;  // whether no others wait at this depth

  const W* mask() const { return mask_.data(); }  // all bits where a lane runs, otherwise none
  bool runs(int32_t i) const { return mask_[i] != 0; }

  /// Whether others wait at or before the instruction, which are to be joined or to run first.
  bool meets() const { return pc >= stop_; }

  /// Notes where the running lanes stand.
  void park() {
    const W key = key_of(depth, pc);
    ops_.part(keys_.data(), mask_.data(), mask_.data(), key, key, width_);
  }

  /// Chooses the lanes that run next: the deepest, of these the earliest. False: there are none.
  bool elect() {
    const W first = ops_.largest(keys_.data(), width_);
    if (first == 0) return false;
    choose(static_cast<int32_t>(first));
    return true;
  }

  /// The same where the running lanes are among them.
  bool regroup() {
    park();
    return elect();
  }

  /// At a jump back: those that wait are through with the loop, and where they are more they go on.
  void turn() {
    if (apart) return;
    park();
    if (2 * count >= beside_) {
      elect();
      return;
    }
    int32_t last = kNever;
    for (const W key : keys_)
      if (key >= depth * kPcs) last = std::min(last, static_cast<int32_t>(key));
    choose(last);
  }

  /// Jumps in those lanes where `test` is not zero.
  void split(const W* test, int32_t distance) {
    const W taken = ops_.count(test, mask_.data(), width_);
    if (taken == 0 || taken == count) {
      pc += taken == 0 ? 1 : distance;
      return;
    }
    const int32_t yes = key_of(depth, pc + distance), no = key_of(depth, pc + 1);
    ops_.part(keys_.data(), test, mask_.data(), yes, no, width_);
    elect();
  }

  /// Jumps in each lane as far as `distance` says.
  template <class Of>
  void jump_each(Of distance) {
    for (int32_t i = 0; i < width_; ++i)
      if (runs(i)) keys_[i] = key_of(depth, pc + distance(i));
    elect();
  }

  /// The running lanes make a call, at whose depth there are no others: those that go deeper go
  /// first.
  void deepen() {
    ++depth;
    apart = true;
    stop_ = kNever;
  }

  /// A lane begins at an instruction of the first depth.
  void begin(int32_t i, int32_t start) { keys_[i] = key_of(1, start); }
  bool is_free(int32_t i) const { return keys_[i] == 0; }

  /// The running lanes end.
  void end() {
    for (int32_t i = 0; i < width_; ++i) keys_[i] &= ~mask_[i];
  }

  struct Place {
    int32_t lane, depth, pc;
  };

  /// Takes a lane away; there is one.
  Place take() {
    const auto found = std::find_if(keys_.begin(), keys_.end(), [](W key) { return key != 0; });
    const auto key = static_cast<int32_t>(*found);
    *found = 0;
    return {static_cast<int32_t>(found - keys_.begin()), depth_of(key), pc_of(key)};
  }

 private:
  static constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

  // 0: nowhere, the lane has ended.
  static constexpr int32_t key_of(int32_t depth, int32_t pc) {
    return depth * kPcs + kPcs - 1 - pc;
  }
  static constexpr int32_t depth_of(int32_t key) { return key / kPcs; }
  static constexpr int32_t pc_of(int32_t key) { return kPcs - 1 - key % kPcs; }

  // Runs the lanes that stand at one place.
  void choose(int32_t key) {
    depth = depth_of(key);
    pc = pc_of(key);
    const int32_t deepest = depth * kPcs;
    const Chosen<W> chosen = ops_.choose(mask_.data(), keys_.data(), key, deepest, width_);
    count = static_cast<int32_t>(chosen.count);
    beside_ = static_cast<int32_t>(chosen.at_least);
    apart = beside_ == count;
    stop_ = chosen.next < deepest ? kNever : pc_of(static_cast<int32_t>(chosen.next));
  }

  const Columns<W>& ops_;
  const int32_t width_;
  std::vector<W> mask_;
  std::vector<W> keys_;    // of lanes that run, where they stood
  int32_t beside_ = 0;     // lanes of this depth
  int32_t stop_ = kNever;  // where others of this depth wait
};

}  // namespace jaxrec::native
