// A stack of frames of a native program: what one worker runs at a time, depth first.
//
// A frame is `frame_words` words: the address to return to, then the registers. Frame 0 stands for
// whoever started the stack and receives the results of frame 1. All frames are of one size, so
// frame n is at n * frame_words, and nothing in a frame points into the stack: it may move when it
// grows.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "core/native_program.h"

namespace jaxrec::native {

struct Stack;
struct Join;

/// A call that was given away: a root of another stack.
struct Task {
  const CallSite* call;
  std::vector<Word> args;
  std::vector<Word> results;
  Stack* parent;  // where the caller is
  Join* join;     // where it waits
  int32_t depth;  // of the caller
  int32_t lane;
};

/// What a frame waits for once some of its calls were given away: of a run of independent calls
/// those before `end` run here, one after the other, and `tasks`, the last call first, elsewhere.
///
/// `pending` counts the tasks that have not ended, and the owner until it has arrived. Who takes it
/// to 0 goes on with the stack: nothing waits and no lock is held.
struct Join {
  Instr code[2];        // the call that runs here, and JOIN: the address it returns to
  int64_t frame = 0;    // the number of the frame
  int32_t running = 0;  // the instruction that `code[0]` copies
  int32_t end = 0;      // the first instruction that was given away
  int32_t after = 0;    // the instruction behind the run of calls
  std::vector<std::unique_ptr<Task>> tasks;
  std::atomic<int32_t> pending{1};
};

/// Why a stack cannot go on.
enum class Fault : uint8_t { kNone, kIndex, kDepth, kCalls, kCycle, kMemory, kGivenUp };

struct Stack {
  /// `room` is how many bytes the stacks of a run may still take.
  Stack(const Program& program, std::atomic<int64_t>& room);
  ~Stack() { std::free(words); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  /// Sets up a call of a function from outside as frame 1, whose `args()` are then to be filled.
  /// False: no memory.
  bool enter(const Function& function, int64_t depth_limit);
  /// Frees its memory, once it has ended.
  void give_back();
  Word* args() { return frame(1); }
  /// The results, once the machine has come to END.
  const Word* results() const { return frame(0); }

  Word* frame(int64_t n) { return words + n * frame_words + 1; }
  const Word* frame(int64_t n) const { return words + n * frame_words + 1; }
  int64_t top() const { return (fp - words) / frame_words; }
  const Instr* return_address(int64_t n) const {
    return reinterpret_cast<const Instr*>(frame(n)[-1]);
  }

  /// Makes room for one more frame; false: too deep, or no memory (see `fault`).
  bool grow();

  /// Takes the last of the stealable calls of the oldest frame that has any; null if none has.
  /// `looked_at` counts the frames that were looked at.
  Task* give(int64_t& looked_at);

  /// A call of the last join has ended here: goes on with the next one. False: all have.
  bool next_call();

  /// Takes over the results of the last join's tasks; goes on behind them.
  void finish_join();

  const Program& program;
  const int64_t frame_words;
  Word* words = nullptr;
  Word* limit = nullptr;      // a frame that starts here or behind does not fit
  Word* fp = nullptr;         // registers of the running frame, and
  const Instr* pc = nullptr;  // its next instruction, while no machine runs the stack
  Instr root[2];              // stands for the call that made frame 1, and END
  std::vector<std::unique_ptr<Join>> joins;  // by ascending frame
  Task* task = nullptr;                      // what frame 1 is, or null: a root of the invocation
  int64_t depth_limit = 0;                   // of frames of this stack
  int32_t depth = 0;                         // of calls around this stack
  int32_t lane = 0;
  Fault fault = Fault::kNone;

 private:
  Task* take_last(Join& join);
  int64_t frame_bytes() const { return frame_words * static_cast<int64_t>(sizeof(Word)); }
  void set_capacity(int64_t frames);
  void set_limit();

  std::atomic<int64_t>& room_;
  int64_t capacity_ = 0;  // frames
};

}  // namespace jaxrec::native
