#include "core/runtime.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>

#include "core/deque.h"

namespace jaxrec {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 16;                            // of looking before a worker parks
constexpr auto kPoll = std::chrono::milliseconds(20);  // between looks for an interrupt

class Run {
 public:
  Run(const TaskGraph& graph, int32_t workers, Launcher& launcher)
      : graph_(graph),
        launcher_(launcher),
        ids_(graph.size()),
        waiting_(new std::atomic<int32_t>[graph.size()]),
        left_(graph.size()),
        reports_(workers) {
    std::iota(ids_.begin(), ids_.end(), 0);
    for (int32_t i = 0; i < graph.size(); ++i) waiting_[i].store(graph.waiting[i]);
    for (int32_t i = 0; i < workers; ++i) deques_.push_back(std::make_unique<Tasks>());
    deal();
  }

  bool run(std::vector<WorkerReport>& reports) {
    std::vector<std::thread> threads;
    threads.reserve(workers());
    try {
      for (int32_t i = 1; i < workers(); ++i) threads.emplace_back([this, i] { work(i); });
    } catch (const std::exception&) {
      // No more threads to be had: those that there are do the work.
    }
    work(0);
    for (std::thread& thread : threads) thread.join();
    reports = reports_;
    return !stop_.load() && left_.load() == 0;
  }

 private:
  using Tasks = Deque<const int32_t>;

  int32_t workers() const { return static_cast<int32_t>(deques_.size()); }

  // Before any worker starts, so that pushing to the deques of others is safe. The task to run
  // first is pushed last.
  void deal() {
    std::vector<int32_t> ready;
    for (int32_t i = 0; i < graph_.size(); ++i)
      if (graph_.waiting[i] == 0) ready.push_back(i);
    sort_by_priority(ready);
    for (int32_t task : ready) deques_[graph_.home[task] % workers()]->push(&ids_[task]);
  }

  void sort_by_priority(std::vector<int32_t>& tasks) const {
    std::sort(tasks.begin(), tasks.end(), [this](int32_t a, int32_t b) {
      const double x = graph_.priority[a], y = graph_.priority[b];
      return x != y ? x < y : a > b;
    });
  }

  void work(int32_t worker) {
    launcher_.begin(worker);
    try {
      while (!over()) step(worker);
    } catch (const std::exception&) {  // memory, whatever the container calls it
      stop();
    }
    launcher_.end(worker);
  }

  void step(int32_t worker) {
    const int32_t* task = deques_[worker]->pop();
    if (task == nullptr && is_busy(worker)) return;
    if (task == nullptr) task = find(worker);
    if (task == nullptr) return;
    ++reports_[worker].tasks;
    if (launcher_.launch(worker, *task)) finish(worker, *task);
    else stop();
  }

  bool is_busy(int32_t worker) {
    const Waited waited = launcher_.wait(worker);
    if (waited == Waited::kFailed) stop();
    return waited != Waited::kNothing;
  }

  void stop() {
    stop_.store(true);
    wake();
  }

  bool over() const { return stop_.load() || left_.load() == 0; }

  void finish(int32_t worker, int32_t task) {
    std::vector<int32_t> ready;
    for (int32_t k = graph_.first_next[task]; k < graph_.first_next[task + 1]; ++k)
      // Acquire and release: the task that follows sees what all those before it did.
      if (waiting_[graph_.next[k]].fetch_sub(1, std::memory_order_acq_rel) == 1)
        ready.push_back(graph_.next[k]);
    sort_by_priority(ready);
    for (int32_t next : ready) deques_[worker]->push(&ids_[next]);
    const bool last = left_.fetch_sub(1) == 1;
    // One of them this worker runs itself.
    if (ready.size() > 1 || last) wake();
  }

  // Looks at all deques, and parks when they stay empty. Null: look again.
  const int32_t* find(int32_t worker) {
    const auto start = Clock::now();
    const int32_t* task = nullptr;
    for (int round = 0; round < kRounds && task == nullptr && !over(); ++round) {
      // Before looking: a push that comes later changes it, so that `park` does not sleep.
      const int64_t seen = epoch_.load();
      task = steal(worker);
      if (task == nullptr && round + 1 == kRounds) park(worker, seen);
      else if (task == nullptr) std::this_thread::yield();
    }
    reports_[worker].idle_ns +=
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
    return task;
  }

  const int32_t* steal(int32_t worker) {
    for (int32_t i = 1; i < workers(); ++i) {
      int64_t index = 0;
      if (const int32_t* task = deques_[(worker + i) % workers()]->steal(index)) {
        ++reports_[worker].steals;
        return task;
      }
    }
    return nullptr;
  }

  // Sleeps until something is pushed. A sleeper says so before it looks at the epoch for the last
  // time, and whoever pushes changes the epoch before it looks for sleepers, all in one order: at
  // least one of the two sees the other.
  void park(int32_t worker, int64_t seen) {
    std::unique_lock<std::mutex> lock(mutex_);
    sleepers_.fetch_add(1);
    const auto awake = [&] { return epoch_.load() != seen || over(); };
    if (worker != 0) {
      condition_.wait(lock, awake);
    } else {
      while (!condition_.wait_for(lock, kPoll, awake)) {
        lock.unlock();
        if (launcher_.interrupted()) stop();
        lock.lock();
      }
    }
    sleepers_.fetch_sub(1);
  }

  void wake() {
    epoch_.fetch_add(1);
    if (sleepers_.load() == 0) return;
    // Nobody is between its last look and its sleep while the lock is held.
    {
      const std::lock_guard<std::mutex> lock(mutex_);
    }
    condition_.notify_all();
  }

  const TaskGraph& graph_;
  Launcher& launcher_;
  std::vector<int32_t> ids_;  // deques hold pointers
  std::unique_ptr<std::atomic<int32_t>[]> waiting_;
  std::vector<std::unique_ptr<Tasks>> deques_;
  std::atomic<int32_t> left_;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> epoch_{0};  // changes when there is something to look for
  std::atomic<int32_t> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable condition_;
  std::vector<WorkerReport> reports_;  // a worker writes its own
};

}  // namespace

Status make_task_graph(const TaskEdges& edges, TaskGraph& out) {
  const int32_t n = static_cast<int32_t>(edges.cost.size());
  if (edges.before.size() != edges.after.size())
    return internal_error("edges of tasks do not come in pairs");
  out.waiting.assign(n, 0);
  out.first_next.assign(n + 2, 0);
  for (size_t k = 0; k < edges.before.size(); ++k) {
    const int32_t from = edges.before[k], to = edges.after[k];
    // So there is no cycle, and every task can run.
    if (from < 0 || from >= to || to >= n) return internal_error("a task waits for a later one");
    ++out.waiting[to];
    ++out.first_next[from + 2];
  }
  for (int32_t i = 2; i < n + 2; ++i) out.first_next[i] += out.first_next[i - 1];
  out.next.resize(edges.before.size());
  for (size_t k = 0; k < edges.before.size(); ++k)
    out.next[out.first_next[edges.before[k] + 1]++] = edges.after[k];
  out.first_next.pop_back();
  out.priority = edges.cost;
  for (int32_t i = n; i-- > 0;) {
    double longest = 0;
    for (int32_t k = out.first_next[i]; k < out.first_next[i + 1]; ++k)
      longest = std::max(longest, out.priority[out.next[k]]);
    out.priority[i] += longest;
  }
  out.home.assign(n, 0);
  int32_t ready = 0;
  for (int32_t i = 0; i < n; ++i)
    if (out.waiting[i] == 0) out.home[i] = ready++;
  return {};
}

bool run_tasks(const TaskGraph& graph, int32_t workers, Launcher& launcher,
               std::vector<WorkerReport>& reports) {
  return Run(graph, std::max(workers, 1), launcher).run(reports);
}

}  // namespace jaxrec
