// Workers that share one invocation of a native program by work stealing.
//
// While there are lanes that have not begun, a worker runs them in gangs (native_gang.h). What a
// gang leaves goes on alone, on whichever worker takes it.
//
// A worker runs one stack, depth first. One that has nothing to do says so, and another that sees
// it at its next poll gives it a call that it has not begun: the last of the oldest run of
// independent calls on its stack, the root of the largest subtree it has. Whoever reaches a call
// that was given away and has not ended leaves its stack; whoever ends that call goes on with it.
// So nobody waits while there is work, and the frames alive at any time lie on at most as many call
// paths as there are workers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/native_gang.h"
#include "core/native_invocation.h"
#include "core/native_machine.h"

namespace jaxrec::native {

class Pool {
 public:
  explicit Pool(const Invocation& invocation);
  ~Pool();

  /// Runs all lanes; returns how it ended.
  Fault run();

  int64_t calls() const;

  /// The stack at fault, null if it is memory that failed; and the first worker's machine.
  const Stack* faulty() const { return faulty_; }
  const Machine& first_machine() const { return workers_[0]->machine; }

 private:
  class Worker : public Supervisor, public LaneSource {
   public:
    explicit Worker(Pool& pool) : machine(pool.at_.program, pool.at_.outers, *this), pool_(pool) {}
    bool poll(Stack& stack, int64_t looped) override;
    bool goes_on(int64_t looped) override;
    void fail(Fault fault) override { pool_.stop(fault); }
    int64_t take_lanes(int64_t most, int64_t& first) override;
    void end_lanes(int64_t count) override { pool_.end_lanes(count); }
    int64_t calls() const { return machine.calls() + (gang == nullptr ? 0 : gang->calls()); }

    Machine machine;
    std::unique_ptr<Gang> gang;           // null until it runs one
    std::vector<Stack*> spare;            // stacks that nobody runs
    bool asks = false;                    // whether to give up
    int64_t next_lane = 0, end_lane = 0;  // lanes it has taken and not begun

   private:
    Fault look(int64_t looped, int64_t polls);

    Pool& pool_;
    int64_t polls_ = 0;  // since it has asked
    int64_t polls_to_skip_ = 0;
    int64_t counted_ = 0;
  };

  void guarded(Worker& worker);
  void work(Worker& worker);
  Stack* next(Worker& worker);
  bool run_gang(Worker& worker);
  Stack* take_alone();
  Stack* pop_alone();
  Stack* next_lane(Worker& worker);
  void take_share(Worker& worker);
  Stack* run_stack(Worker& worker, Stack& stack);
  Stack* end(Worker& worker, Stack& stack);
  Stack* end_task(const Stack& stack);
  void end_lane(const Stack& stack);
  void end_lanes(int64_t count);
  Stack* wait(Worker& worker);
  bool has_work() const { return !tasks_.empty() || !alone_.empty(); }
  void give(Task* task);
  Stack& take_stack(Worker& worker);
  void start_lane(Worker& worker, Stack& stack, int64_t lane);
  Stack* start_task(Worker& worker, Task& task);
  bool is_time_for_threads(int64_t work) const;
  void start_threads();
  void stop(Fault fault, const Stack* stack = nullptr);
  void update_hungry();

  const Invocation at_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::thread> threads_;
  std::atomic<int64_t> next_lane_{0};    // the first that no worker has taken
  std::atomic<int64_t> lanes_left_{0};   // that have not ended
  std::atomic<int32_t> hungry_{0};       // workers that wait, less what is on its way to them
  std::atomic<int64_t> calls_{0};        // counted at polls, if they are limited
  std::atomic<int64_t> stack_room_;      // bytes that stacks may still take
  std::atomic<bool> lockstep_;           // whether lanes run in gangs
  std::atomic<bool> left_alone_{false};  // whether lanes have left their gangs and nobody has them
  std::atomic<bool> started_{false};     // whether there are threads
  std::atomic<bool> stopped_{false};

  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::deque<Task*> tasks_;
  std::deque<Stack*> alone_;  // lanes that have left their gangs, on nobody's way
  std::vector<std::unique_ptr<Stack>> stacks_;
  int32_t waiting_ = 0;
  bool done_ = false;
  Fault fault_ = Fault::kNone;
  const Stack* faulty_ = nullptr;
};

}  // namespace jaxrec::native
