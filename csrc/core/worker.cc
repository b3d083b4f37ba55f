#include "core/worker.h"

#include <algorithm>
#include <limits>
#include <thread>

namespace jaxrec {
namespace {

constexpr int64_t kBatch =
    1024;  // calls counted privately before they are added to the shared count
constexpr size_t kFirstFrames = 256;
constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

}  // namespace

Worker::Worker(int32_t number, const Program& program, const std::vector<Outer>& outers,
               Shared& shared)
    : number(number),
      table(program),
      program_(program),
      shared_(shared),
      machine_(program, outers, arena, table),
      memo_(program.has_memo() ? std::make_unique<Memo>(program) : nullptr) {}

Segment& Worker::new_segment() {
  segments.push_back(std::make_unique<Segment>());
  segments.back()->number = shared_.segments.fetch_add(1, std::memory_order_relaxed);
  segments.back()->worker = number;
  segments.back()->calls.reserve(kFirstFrames);
  segments.back()->outlines.reserve(kFirstFrames);
  return *segments.back();
}

void Worker::fail(Fault what, const Call* call) {
  fault = what;
  fault_call = call;
  shared_.stop.store(true,
                     std::memory_order_relaxed);  // only a flag: results are read after joining
}

// Counts a call, unless it is one too many.
bool Worker::admit(const Call& call) {
  if (shared_.stop.load(std::memory_order_relaxed)) return false;
  if (call.depth > shared_.limits.depth) return fail(Fault::kDepth, &call), false;
  depth = std::max(depth, call.depth);
  bool over = ++num_calls > shared_.limits.calls;
  if (num_calls % kBatch == 0)
    over |=
        shared_.calls.fetch_add(kBatch, std::memory_order_relaxed) + kBatch > shared_.limits.calls;
  if (over) fail(Fault::kCalls, &call);
  return !over;
}

// Notes the call as one that has its frame already, or else that it becomes the next frame.
bool Worker::is_repeat(const Call& call, Segment& segment) {
  const bool shared = program_.functions[call.callee].memo;
  const int32_t frame = shared ? memo_->find_or_add(call, segment.calls) : Memo::kNone;
  if (frame == Memo::kNone) {
    memo_->enter(call, static_cast<int32_t>(segment.calls.size()));
    return false;
  }
  if (memo_->is_open(call, *segment.calls[frame], frame)) fail(Fault::kItself, &call);
  segment.repeats.push_back({&call, frame});
  return true;
}

template <class Tasks>
Call* Worker::drain(Tasks& tasks, Call* call, Segment& segment, size_t most) {
  while (call != nullptr && segment.calls.size() < most) {
    if (memo_ != nullptr && is_repeat(*call, segment)) {
      call = fault == Fault::kNone ? tasks.pop() : nullptr;
      continue;
    }
    if (!admit(*call)) return nullptr;
    if (!machine_.run(*call, segment)) return fail(Fault::kIndex, call), nullptr;
    const std::vector<Call*>& made = machine_.made();
    for (size_t i = made.size(); i > 1; --i) tasks.push(made[i - 1]);
    call = made.empty() ? tasks.pop() : made[0];
  }
  return call;
}

template Call* Worker::drain(Stack&, Call*, Segment&, size_t);
template Call* Worker::drain(Deque<Call>&, Call*, Segment&, size_t);

void Worker::steal_and_drain(const std::vector<std::unique_ptr<Worker>>& workers) {
  int64_t index = 0;
  while (Call* call = find_task(workers, index)) {
    Segment& segment = new_segment();
    segment.origin = call->segment;
    segment.steal = index;
    drain(deque, call, segment, kNoLimit);
  }
}

// Called with an empty deque. A worker is counted active while it may push, and before it takes
// anything from another; so at a count of 0 every deque is empty and stays so. The count is
// sequentially consistent: a worker that reads 0 has every other's last steal behind it.
Call* Worker::find_task(const std::vector<std::unique_ptr<Worker>>& workers, int64_t& index) {
  shared_.active.fetch_sub(1);
  while (shared_.active.load() > 0 && !shared_.stop.load(std::memory_order_relaxed)) {
    for (size_t i = 1; i < workers.size(); ++i) {
      Deque<Call>& victim = workers[(number + i) % workers.size()]->deque;
      if (victim.seems_empty()) continue;
      shared_.active.fetch_add(1);
      if (Call* call = victim.steal(index)) return call;
      shared_.active.fetch_sub(1);
    }
    std::this_thread::yield();
  }
  return nullptr;
}

}  // namespace jaxrec
