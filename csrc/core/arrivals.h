// What is known at an instruction of code whose jumps go forward, from every way that leads there.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace jaxrec {

/// Follows code in its order: each instruction is entered once all that jump to it have been. What
/// two ways do not agree on is unknown where they meet.
class Arrivals {
 public:
  static constexpr int32_t kUnknown = -1;
  using State = std::vector<int32_t>;

  // One element more than needed: an empty state means "nothing arrived".
  Arrivals(int32_t instructions, int32_t elements)
      : state_(elements + 1, kUnknown), waiting_(instructions) {}

  int32_t& operator[](int32_t element) { return state_[element]; }
  const State& state() const { return state_; }

  /// Goes on to an instruction; false: nothing leads there.
  bool enter(int32_t at) {
    State& arrived = waiting_[at];
    if (!arrived.empty()) {
      if (live_) join(state_, arrived);
      else state_ = std::move(arrived);
      live_ = true;
      arrived = State();
    }
    return live_;
  }

  /// There is a jump to an instruction.
  void send(int32_t target) {
    State& arrived = waiting_[target];
    if (arrived.empty()) arrived = state_;
    else join(arrived, state_);
  }

  /// Nothing falls through to the next instruction.
  void leave() { live_ = false; }

 private:
  static void join(State& into, const State& other) {
    for (size_t i = 0; i < into.size(); ++i)
      if (into[i] != other[i]) into[i] = kUnknown;
  }

  State state_;
  std::vector<State> waiting_;  // what jumps bring to each instruction; empty: nothing yet
  bool live_ = true;
};

}  // namespace jaxrec
