// Values of a stepped program, which may not be made yet, and who waits for them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace jaxrec {

/// A union-find of values. The result of a call is a value of its own until the call returns; then
/// it is joined with what the call returns. Waiting lists are joined with the values, in constant
/// time.
///
/// Source: Tarjan & van Leeuwen, "Worst-case analysis of set union algorithms" (1984), for path
/// halving.
class Pending {
 public:
  static constexpr int32_t kNotMade = -1;

  /// New values, numbered one after the other; the first of them.
  int32_t add(size_t count) {
    const int32_t first = static_cast<int32_t>(values_.size());
    for (size_t i = 0; i < count; ++i)
      values_.push_back({first + static_cast<int32_t>(i), kNotMade, kNobody});
    return first;
  }

  /// The value that this one turned out to be, as far as that is known.
  int32_t find(int32_t value) {
    while (values_[value].target != value) {
      values_[value].target = values_[values_[value].target].target;
      value = values_[value].target;
    }
    return value;
  }

  size_t size() const { return values_.size(); }

  /// The row of a value that `find` gave, or kNotMade.
  int32_t row(int32_t value) const { return values_[value].row; }

  /// Adds someone, a number from 0, who waits for a value that `find` gave and that is not made.
  void wait(int32_t value, int32_t who) {
    const int32_t entry = new_entry(who);
    int32_t& last = values_[value].last;
    if (last != kNobody) std::swap(entries_[entry].next, entries_[last].next);
    last = entry;
  }

  /// Says which row a value that `find` gave is made in, and calls release(who) for all who wait.
  template <class Release>
  void make(int32_t value, int32_t row, Release release) {
    values_[value].row = row;
    each_waiting(value, release);
  }

  /// Says that a value is another one.
  template <class Release>
  void join(int32_t value, int32_t with, Release release) {
    value = find(value);
    with = find(with);
    if (value == with) return;
    values_[value].target = with;
    if (values_[with].row != kNotMade) return each_waiting(value, release);
    const int32_t last = std::exchange(values_[value].last, kNobody);
    if (last == kNobody) return;
    int32_t& other = values_[with].last;
    if (other != kNobody) std::swap(entries_[last].next, entries_[other].next);
    other = last;
  }

 private:
  static constexpr int32_t kNobody = -1;

  struct Value {
    int32_t target;  // itself, or what it is
    int32_t row;
    int32_t last;  // of a circular list of entries
  };
  struct Entry {
    int32_t who;
    int32_t next;
  };

  int32_t new_entry(int32_t who) {
    int32_t entry = free_;
    if (entry == kNobody) {
      entry = static_cast<int32_t>(entries_.size());
      entries_.emplace_back();
    } else {
      free_ = entries_[entry].next;
    }
    entries_[entry] = {who, entry};
    return entry;
  }

  // In the order in which they came.
  template <class Release>
  void each_waiting(int32_t value, Release release) {
    const int32_t last = std::exchange(values_[value].last, kNobody);
    if (last == kNobody) return;
    for (int32_t at = entries_[last].next;;) {
      release(entries_[at].who);
      if (at == last) break;
      at = entries_[at].next;
    }
    std::swap(free_, entries_[last].next);
  }

  std::vector<Value> values_;
  std::vector<Entry> entries_;
  int32_t free_ = kNobody;
};

}  // namespace jaxrec
