// The machine of native programs: runs a stack until its first call returns or something happens.
#pragma once

#include <cstdint>
#include <vector>

#include "core/machine.h"
#include "core/native_memo.h"
#include "core/native_stack.h"

namespace jaxrec::native {

/// What a machine asks of those who run several of them.
class Supervisor {
 public:
  virtual ~Supervisor() = default;

  /// Called every `kPoll` calls, and now and then in a loop, with about the instructions of loops;
  /// may give calls of the stack away. False: stop, for the stack's fault if it has one now.
  virtual bool poll(Stack& stack, int64_t looped) = 0;

  static constexpr int32_t kPoll = 512;
};

/// Why a machine stopped.
enum class Exit {
  kDone,     // the call that started the stack has returned
  kWaiting,  // for calls that were given away; whoever ends the last one goes on with the stack
  kFault,    // see the stack
  kStopped   // the supervisor says so
};

/// One worker's machine.
class Machine {
 public:
  Machine(const Program& program, const std::vector<Outer>& outers, Supervisor& supervisor);

  /// Runs a stack from where it stands.
  Exit run(Stack& stack);

  /// Before a stack runs that starts with a call of the entry function, whose arguments are set.
  void begin(Stack& stack);

  /// Counts a call that starts a stack. `begin` does so by itself.
  void count_call();

  /// Calls made so far, those that start stacks included.
  int64_t calls() const { return counted_ - budget_; }

  /// Why the last stack stopped with Fault::kIndex; the fault's `call` is not set.
  const IndexFault& fault() const { return fault_; }

 private:
  /// An outer array as the running lane sees it.
  struct Bound {
    const void* data;
    int64_t size;  // of its first axis
    LoadFn load;
  };

  enum class Enter { kGo, kStop, kFault };

  void bind(int32_t lane);
  Enter prepare_call(Stack& stack);
  void refill();
  bool load(Stack& stack);
  bool fail_load(Stack& stack, int32_t axis);
  const Word* find_memo(Stack& stack, const CallSite& call);
  void keep_memo(const Word* fp, const Instr& in);

  const Program& program_;
  const std::vector<Outer>& outers_;
  Supervisor& supervisor_;
  std::vector<Bound> bound_;
  bool by_lane_ = false;  // whether lanes see different arrays
  int32_t lane_ = -1;
  int64_t counted_ = Supervisor::kPoll;  // calls made, were the budget used up
  int64_t budget_ = Supervisor::kPoll;   // calls until the next poll
  int64_t looped_ = 0;                   // instructions of loops, as far as polled
  Memo memo_;
  std::vector<Word> key_;
  int64_t memo_call_ = 0;
  IndexFault fault_;
};

}  // namespace jaxrec::native
