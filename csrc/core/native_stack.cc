#include "core/native_stack.h"

#include <algorithm>

#include "core/pages.h"

namespace jaxrec::native {
namespace {

constexpr int64_t kFirstWords = 1 << 10;

}  // namespace

Stack::Stack(const Program& program, std::atomic<int64_t>& room)
    : program(program), frame_words(program.frame_words), room_(room) {
  root[1].op = static_cast<uint16_t>(MachineOp::END);
}

// Frame 0 receives the results in its first registers: `root[0]` stands where RET1 looks for the
// register of one result, and where RETN looks for the list of several.
bool Stack::enter(const Function& function, int64_t limit_of_depth) {
  depth_limit = limit_of_depth;
  if (capacity_ == 0) set_capacity(std::max<int64_t>(kFirstWords / frame_words, 4));
  if (fault != Fault::kNone) return false;
  set_limit();
  root[0].dst = 0;
  root[0].ref = {0, 0};  // the pool begins with 0, 1, 2, ...
  fp = frame(1);
  fp[-1] = reinterpret_cast<Word>(&root[1]);
  pc = program.code.data() + function.code_begin;
  return true;
}

void Stack::set_capacity(int64_t frames) {
  const int64_t at = words == nullptr ? 0 : fp - words;
  const int64_t more = (frames - capacity_) * frame_bytes();
  const auto bytes = static_cast<size_t>(frames * frame_bytes());
  const bool fits = room_.fetch_sub(more, std::memory_order_relaxed) >= more;
  void* moved = fits ? std::realloc(words, bytes) : nullptr;
  if (moved == nullptr) {
    fault = Fault::kMemory;
    return;
  }
  use_large_pages(moved, bytes);  // a deep stack is fresh memory, whose pages come one by one
  words = static_cast<Word*>(moved);
  fp = words + at;
  capacity_ = frames;
  set_limit();
}

void Stack::give_back() {
  room_.fetch_add(capacity_ * frame_bytes(), std::memory_order_relaxed);
  std::free(words);
  words = nullptr;
  capacity_ = 0;
}

void Stack::set_limit() { limit = frame(std::min(capacity_ - 1, depth_limit)) + 1; }

bool Stack::grow() {
  if (top() >= depth_limit) fault = Fault::kDepth;
  else if (top() + 1 >= capacity_) set_capacity(std::min(2 * capacity_, depth_limit + 2));
  return fault == Fault::kNone;
}

Task* Stack::give(int64_t& looked_at) {
  // Frames below the last join have given everything away.
  int64_t n = 1;
  if (!joins.empty()) {
    Join& last = *joins.back();
    if (last.end > last.running + 1) return take_last(last);
    n = last.frame + 1;
  }
  const int64_t first = n, newest = top();
  for (; n < newest; ++n) {
    const int32_t rest = program.site_before(return_address(n + 1)).rest;
    if (rest == 0) continue;
    auto join = std::make_unique<Join>();
    join->frame = n;
    join->running = static_cast<int32_t>(return_address(n + 1) - program.code.data()) - 1;
    join->end = join->after = join->running + 1 + rest;
    join->code[0] = program.code[join->running];
    join->code[1].op = static_cast<uint16_t>(MachineOp::JOIN);
    frame(n + 1)[-1] = reinterpret_cast<Word>(&join->code[1]);
    joins.push_back(std::move(join));
    looked_at = n - first + 1;
    return take_last(*joins.back());
  }
  looked_at = std::max<int64_t>(newest - first, 0);
  return nullptr;
}

Task* Stack::take_last(Join& join) {
  const CallSite& call = program.calls[program.call_of[--join.end]];
  auto task = std::make_unique<Task>();
  task->call = &call;
  task->parent = this;
  task->join = &join;
  task->depth = depth + static_cast<int32_t>(join.frame);
  task->lane = lane;
  const Word* registers = frame(join.frame);
  const Function& callee = program.functions[call.callee];
  for (size_t i = 0; i < callee.args.size(); ++i)
    task->args.push_back(registers[program.pool[call.args + i]]);
  task->results.resize(callee.results.size());
  // Relaxed: whoever ends the task has received it through a lock.
  join.pending.fetch_add(1, std::memory_order_relaxed);
  join.tasks.push_back(std::move(task));
  return join.tasks.back().get();
}

bool Stack::next_call() {
  Join& join = *joins.back();
  if (++join.running >= join.end) return false;
  join.code[0] = program.code[join.running];
  pc = &join.code[0];
  return true;
}

void Stack::finish_join() {
  const Join& join = *joins.back();
  Word* registers = frame(join.frame);
  // In program order: the last task is the first call.
  for (auto it = join.tasks.rbegin(); it != join.tasks.rend(); ++it) {
    const Task& task = **it;
    for (size_t i = 0; i < task.results.size(); ++i)
      registers[program.pool[task.call->results + i]] = task.results[i];
  }
  fp = registers;
  pc = program.code.data() + join.after;
  joins.pop_back();
}

}  // namespace jaxrec::native
