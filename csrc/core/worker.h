// One worker of an expansion: a machine, a deque, and the segments it produced.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/arena.h"
#include "core/call.h"
#include "core/deque.h"
#include "core/machine.h"
#include "core/memo.h"

namespace jaxrec {

struct Limits {
  int64_t calls;
  int64_t depth;
};

/// What the workers of one expansion share.
struct Shared {
  Limits limits;
  std::atomic<int64_t> calls{0};  // made by all, counted in batches
  std::atomic<int32_t> segments{0};
  std::atomic<int32_t> active{0};  // workers that may still push tasks
  std::atomic<bool> stop{false};   // a fault: leave everything
};

/// The tasks of a worker that is alone: a Deque's owner side without its memory orders.
class Stack {
 public:
  void push(Call* call) { calls_.push_back(call); }
  Call* pop() {
    if (calls_.empty()) return nullptr;
    Call* call = calls_.back();
    calls_.pop_back();
    return call;
  }
  const std::vector<Call*>& calls() const { return calls_; }

 private:
  std::vector<Call*> calls_;
};

class Worker {
 public:
  enum class Fault { kNone, kIndex, kCalls, kDepth, kItself, kMemory };

  Worker(int32_t number, const Program& program, const std::vector<Outer>& outers, Shared& shared);

  Segment& new_segment();

  /// Runs `call`, all that it calls and all tasks, depth first, into `segment`; stops early, giving
  /// back the next call, once the segment has `most` frames. Null: done, or a fault.
  template <class Tasks>
  Call* drain(Tasks& tasks, Call* call, Segment& segment, size_t most);

  /// Steals and runs until no worker has anything left.
  void steal_and_drain(const std::vector<std::unique_ptr<Worker>>& workers);

  void fail(Fault fault, const Call* call);

  const int32_t number;
  Arena arena;
  OutlineTable table;
  Deque<Call> deque;
  std::vector<std::unique_ptr<Segment>> segments;
  int64_t num_calls = 0;
  int32_t depth = 0;
  Fault fault = Fault::kNone;
  const Call* fault_call = nullptr;

  const IndexFault& index_fault() const { return machine_.fault(); }

 private:
  bool admit(const Call& call);
  bool is_repeat(const Call& call, Segment& segment);
  Call* find_task(const std::vector<std::unique_ptr<Worker>>& workers, int64_t& index);

  const Program& program_;
  Shared& shared_;
  Machine machine_;
  std::unique_ptr<Memo> memo_;  // if a function is shared
};

}  // namespace jaxrec
