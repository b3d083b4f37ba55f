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
constexpr int64_t kPollsOfGang = 64;         // that one poll of a gang takes as long as
constexpr std::chrono::milliseconds kMostPatience{100};

}  // namespace

Pool::Pool(const Invocation& invocation)
    : at_(invocation), stack_room_(at_.stack_bytes), lockstep_(Gang::runs(invocation)) {
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
  for (const auto& worker : workers_) calls += worker->calls();
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

// What a worker without a stack does next: what gangs have left, new lanes, and then what others
// leave or give away.
Stack* Pool::next(Worker& worker) {
  bool has_lanes = true;
  while (has_lanes && !stopped_.load(std::memory_order_relaxed)) {
    if (Stack* stack = take_alone()) return stack;
    if (lockstep_.load(std::memory_order_relaxed)) has_lanes = run_gang(worker);
    else if (Stack* stack = next_lane(worker)) return stack;
    else has_lanes = false;
  }
  return stopped_.load(std::memory_order_relaxed) ? nullptr : wait(worker);
}

// Runs lanes together until there are no more or those that are left go on alone; returns whether
// there may be more.
bool Pool::run_gang(Worker& worker) {
  if (worker.gang == nullptr) worker.gang = Gang::make(at_, worker);
  const Gang::Exit exit = worker.gang->run();
  if (exit == Gang::Exit::kDone || exit == Gang::Exit::kStopped) return false;
  if (exit == Gang::Exit::kUnfit) lockstep_.store(false, std::memory_order_relaxed);
  std::vector<Stack*> left;
  while (worker.gang->live() > 0) {
    left.push_back(&take_stack(worker));
    worker.gang->leave(*left.back());
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  alone_.insert(alone_.end(), left.begin(), left.end());
  update_hungry();
  changed_.notify_all();
  return true;
}

Stack* Pool::take_alone() {
  if (!left_alone_.load(std::memory_order_relaxed)) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex_);
  return pop_alone();
}

Stack* Pool::pop_alone() {
  if (alone_.empty()) return nullptr;
  Stack* stack = alone_.front();
  alone_.pop_front();
  update_hungry();
  return stack;
}

Stack* Pool::next_lane(Worker& worker) {
  int64_t lane = 0;
  if (worker.take_lanes(1, lane) == 0) return nullptr;
  Stack& stack = take_stack(worker);
  start_lane(worker, stack, lane);
  return &stack;
}

int64_t Pool::Worker::take_lanes(int64_t most, int64_t& first) {
  if (next_lane == end_lane) pool_.take_share(*this);
  const int64_t count = std::min(most, end_lane - next_lane);
  first = next_lane;
  next_lane += count;
  return count;
}

// Shares get smaller towards the end, but not so small that a gang would be.
void Pool::take_share(Worker& worker) {
  if (is_time_for_threads(worker.calls())) start_threads();
  const int64_t each = (at_.lanes + at_.workers - 1) / at_.workers;
  const bool in_gangs = lockstep_.load(std::memory_order_relaxed);
  const int64_t least = in_gangs ? std::min(each, Gang::kGangLanes) : 1;
  const int64_t left = at_.lanes - next_lane_.load(std::memory_order_relaxed);
  const int64_t share = std::clamp<int64_t>(left / (8 * at_.workers), least, kMostLanesAtOnce);
  worker.next_lane = std::min(next_lane_.fetch_add(share, std::memory_order_relaxed), at_.lanes);
  worker.end_lane = std::min(worker.next_lane + share, at_.lanes);
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
  end_lanes(1);
}

void Pool::end_lanes(int64_t count) {
  if (lanes_left_.fetch_sub(count, std::memory_order_acq_rel) != count) return;
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
  Stack* parent = nullptr;
  if (stack.task != nullptr) parent = end_task(stack);
  else end_lane(stack);
  if (stack_room_.load(std::memory_order_relaxed) < at_.stack_bytes / 2) stack.give_back();
  worker.spare.push_back(&stack);
  return parent;
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

// What others leave or give away; null once there is nothing any more.
Stack* Pool::wait(Worker& worker) {
  std::unique_lock<std::mutex> lock(mutex_);
  ++waiting_;
  update_hungry();
  const auto changed = [this] { return has_work() || done_ || fault_ != Fault::kNone; };
  if (!worker.asks) changed_.wait(lock, changed);
  while (worker.asks && !changed_.wait_for(lock, kMostPatience, changed)) {
    lock.unlock();
    if (at_.give_up()) stop(Fault::kGivenUp);
    lock.lock();
  }
  --waiting_;
  update_hungry();
  if (fault_ != Fault::kNone) return nullptr;
  if (Stack* stack = pop_alone()) return stack;
  if (tasks_.empty()) return nullptr;
  Task* task = tasks_.front();
  tasks_.pop_front();
  update_hungry();
  lock.unlock();
  return start_task(worker, *task);
}

void Pool::update_hungry() {
  left_alone_.store(!alone_.empty(), std::memory_order_relaxed);
  const size_t coming = tasks_.size() + alone_.size();
  hungry_.store(waiting_ - static_cast<int32_t>(coming), std::memory_order_relaxed);
}

void Pool::give(Task* task) {
  const std::lock_guard<std::mutex> lock(mutex_);
  tasks_.push_back(task);
  update_hungry();
  changed_.notify_one();
}

bool Pool::Worker::poll(Stack& stack, int64_t looped) {
  stack.fault = look(looped, 1);
  const bool calls = stack.pc->op != static_cast<uint16_t>(MachineOp::LOOP);
  if (stack.fault == Fault::kCalls && !calls) stack.fault = Fault::kNone;  // the next call has it
  if (stack.fault != Fault::kNone || pool_.stopped_.load(std::memory_order_relaxed)) return false;
  if (pool_.hungry_.load(std::memory_order_relaxed) <= 0) return true;
  if (polls_to_skip_ > 0) return --polls_to_skip_, true;
  int64_t looked_at = 0;
  if (Task* task = stack.give(looked_at)) pool_.give(task);
  else polls_to_skip_ = looked_at / kFramesPerSkippedPoll;  // looking is not to cost much
  return true;
}

bool Pool::Worker::goes_on(int64_t looped) {
  const Fault fault = look(looped, kPollsOfGang);
  if (fault != Fault::kNone) pool_.stop(fault);
  return !pool_.stopped_.load(std::memory_order_relaxed);
}

// Why all are to stop, if they are; starts threads when it is time.
Fault Pool::Worker::look(int64_t looped, int64_t polls) {
  polls_ += polls;
  if (asks && polls_ >= kPollsPerQuestion) {
    polls_ = 0;
    if (pool_.at_.give_up()) return Fault::kGivenUp;
  }
  if (pool_.at_.call_limit >= 0) {
    const int64_t added = calls() - counted_;
    counted_ += added;
    const int64_t all = pool_.calls_.fetch_add(added, std::memory_order_relaxed) + added;
    if (all > pool_.at_.call_limit) return Fault::kCalls;
  }
  if (pool_.is_time_for_threads(calls() + looped)) pool_.start_threads();
  return Fault::kNone;
}

Stack& Pool::take_stack(Worker& worker) {
  if (!worker.spare.empty()) {
    Stack& stack = *worker.spare.back();
    worker.spare.pop_back();
    return stack;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  stacks_.push_back(std::make_unique<Stack>(at_.program, stack_room_));
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
