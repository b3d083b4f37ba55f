#include "core/native_pool.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include "core/denormals.h"

namespace jaxrec::native {
namespace {

constexpr int64_t kMostLanesAtOnce = 1024;
constexpr int64_t kFramesPerSkippedPoll = 64;
constexpr int64_t kPollsPerQuestion = 8192;  // some hundredths of a second
constexpr std::chrono::milliseconds kMostPatience{100};

}  // namespace

Pool::Pool(const Invocation& invocation) : at_(invocation) {
  workers_.push_back(std::make_unique<Worker>(*this));
  workers_[0]->asks = static_cast<bool>(at_.give_up);
  lanes_left_ = at_.lanes;
}

Pool::~Pool() {
  for (std::thread& thread : threads_) thread.join();
}

Fault Pool::run() {
  if (at_.lanes == 0) return Fault::kNone;
  guarded(*workers_[0]);
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  return fault_;
}

int64_t Pool::calls() const {
  int64_t calls = 0;
  for (const auto& worker : workers_) calls += worker->machine.calls();
  return calls;
}

void Pool::guarded(Worker& worker) {
  const FlushDenormals flush;
  try {
    work(worker);
  } catch (const std::exception&) {  // memory, whatever the container calls it
    stop(Fault::kMemory);
  }
}

void Pool::work(Worker& worker) {
  while (Stack* stack = next(worker))
    while (stack != nullptr) stack = run_stack(worker, *stack);
}

// What a worker without a stack does next: a lane, or a call that another one gives away.
Stack* Pool::next(Worker& worker) {
  if (stopped_.load(std::memory_order_relaxed)) return nullptr;
  if (Stack* stack = next_lane(worker)) return stack;
  Task* task = wait_for_task(worker);
  return task == nullptr ? nullptr : start_task(worker, *task);
}

Stack* Pool::next_lane(Worker& worker) {
  if (worker.next_lane == worker.end_lane) {
    if (is_time_for_threads(worker.machine.calls())) start_threads();
    const int64_t left = at_.lanes - next_lane_.load(std::memory_order_relaxed);
    const int64_t share = std::clamp<int64_t>(left / (8 * at_.workers), 1, kMostLanesAtOnce);
    worker.next_lane = next_lane_.fetch_add(share, std::memory_order_relaxed);
    worker.end_lane = std::min(worker.next_lane + share, at_.lanes);
    if (worker.next_lane >= at_.lanes) {
      worker.next_lane = worker.end_lane;
      return nullptr;
    }
  }
  Stack& stack = take_stack(worker);
  start_lane(worker, stack, worker.next_lane++);
  return &stack;
}

// Only what `end` does to a lane: the stack stays with its worker.
void Pool::end_lane(const Stack& stack) {
  const Word* results = stack.results();
  for (size_t i = 0; i < at_.results.size(); ++i) {
    const Port& port = at_.program.results[i];
    for (int32_t k = 0; k < port.count; ++k)
      store_element(at_.results[i].data, port.dtype,
                    static_cast<int64_t>(stack.lane) * port.count + k, *results++);
  }
  if (lanes_left_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

void Pool::start_lane(Worker& worker, Stack& stack, int64_t lane) {
  stack.task = nullptr;
  stack.depth = 0;
  stack.lane = static_cast<int32_t>(lane);
  if (!stack.enter(at_.program.functions[0], at_.depth_limit)) return;  // fails when it runs
  Word* args = stack.args();
  for (size_t i = 0; i < at_.roots.size(); ++i) {
    const Port& port = at_.program.roots[i];
    for (int32_t k = 0; k < port.count; ++k)
      *args++ = load_element(at_.roots[i].data, port.dtype, lane * port.count + k);
  }
  worker.machine.begin(stack);
}

Stack* Pool::start_task(Worker& worker, Task& task) {
  Stack& stack = take_stack(worker);
  stack.task = &task;
  stack.depth = task.depth;
  stack.lane = task.lane;
  worker.machine.count_call();
  if (stack.enter(at_.program.functions[task.call->callee], at_.depth_limit - task.depth))
    std::copy(task.args.begin(), task.args.end(), stack.args());
  return &stack;
}

// Runs a stack until it stops; returns the one to go on with, or null.
Stack* Pool::run_stack(Worker& worker, Stack& stack) {
  if (stack.fault != Fault::kNone) return stop(stack.fault, &stack), nullptr;
  switch (worker.machine.run(stack)) {
    case Exit::kDone: return end(worker, stack);
    case Exit::kFault: return stop(stack.fault, &stack), nullptr;
    default: return nullptr;  // somebody else goes on with it, or nobody
  }
}

Stack* Pool::end(Worker& worker, Stack& stack) {
  worker.spare.push_back(&stack);
  if (stack.task != nullptr) return end_task(stack);
  end_lane(stack);
  return nullptr;
}

Stack* Pool::end_task(const Stack& stack) {
  Task& task = *stack.task;
  std::copy_n(stack.results(), task.results.size(), task.results.begin());
  Stack& parent = *task.parent;  // the task goes with its join
  // Release: the results are there for whoever goes on. Acquire: or that is us, and what the
  // parent's worker and other tasks wrote is there.
  if (task.join->pending.fetch_sub(1, std::memory_order_acq_rel) != 1) return nullptr;
  parent.finish_join();
  return &parent;
}

Task* Pool::wait_for_task(const Worker& worker) {
  std::unique_lock<std::mutex> lock(mutex_);
  ++waiting_;
  update_hungry();
  const auto changed = [this] { return !tasks_.empty() || done_ || fault_ != Fault::kNone; };
  if (!worker.asks) changed_.wait(lock, changed);
  while (worker.asks && !changed_.wait_for(lock, kMostPatience, changed)) {
    lock.unlock();
    if (at_.give_up()) stop(Fault::kGivenUp);
    lock.lock();
  }
  --waiting_;
  Task* task = nullptr;
  if (!tasks_.empty() && fault_ == Fault::kNone) {
    task = tasks_.front();
    tasks_.pop_front();
  }
  update_hungry();
  return task;
}

void Pool::update_hungry() {
  hungry_.store(waiting_ - static_cast<int32_t>(tasks_.size()), std::memory_order_relaxed);
}

void Pool::give(Task* task) {
  const std::lock_guard<std::mutex> lock(mutex_);
  tasks_.push_back(task);
  update_hungry();
  changed_.notify_one();
}

bool Pool::Worker::poll(Stack& stack, int64_t calls, int64_t looped) {
  if (pool_.stopped_.load(std::memory_order_relaxed)) return false;
  if (asks && ++polls_ % kPollsPerQuestion == 0 && pool_.at_.give_up()) {
    stack.fault = Fault::kGivenUp;
    return false;
  }
  if (pool_.at_.call_limit >= 0 && !count(stack, calls)) return false;
  if (pool_.at_.workers == 1) return true;
  if (pool_.is_time_for_threads(calls + looped)) pool_.start_threads();
  if (pool_.hungry_.load(std::memory_order_relaxed) <= 0) return true;
  if (polls_to_skip_ > 0) return --polls_to_skip_, true;
  int64_t looked_at = 0;
  if (Task* task = stack.give(looked_at)) pool_.give(task);
  else polls_to_skip_ = looked_at / kFramesPerSkippedPoll;  // looking is not to cost much
  return true;
}

bool Pool::Worker::count(Stack& stack, int64_t calls) {
  const int64_t added = calls - counted_;
  counted_ = calls;
  const int64_t all = pool_.calls_.fetch_add(added, std::memory_order_relaxed) + added;
  if (all > pool_.at_.call_limit) stack.fault = Fault::kCalls;
  return stack.fault == Fault::kNone;
}

Stack& Pool::take_stack(Worker& worker) {
  if (!worker.spare.empty()) {
    Stack& stack = *worker.spare.back();
    worker.spare.pop_back();
    return stack;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  stacks_.push_back(std::make_unique<Stack>(at_.program));
  return *stacks_.back();
}

bool Pool::is_time_for_threads(int64_t work) const {
  return at_.workers > 1 && work >= at_.serial_calls && !started_.load(std::memory_order_relaxed);
}

// Called by the first worker while it is alone.
void Pool::start_threads() {
  started_.store(true, std::memory_order_relaxed);
  while (static_cast<int32_t>(workers_.size()) < at_.workers)
    workers_.push_back(std::make_unique<Worker>(*this));
  threads_.reserve(workers_.size());
  try {
    for (size_t i = 1; i < workers_.size(); ++i)
      threads_.emplace_back([this, i] { guarded(*workers_[i]); });
  } catch (const std::exception&) {  // no more threads to be had: those that run will do
  }
}

void Pool::stop(Fault fault, const Stack* stack) {
  stopped_.store(true, std::memory_order_relaxed);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (fault_ == Fault::kNone) {
    fault_ = fault;
    faulty_ = stack;
  }
  changed_.notify_all();
}

}  // namespace jaxrec::native
