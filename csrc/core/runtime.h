// The runtime: tasks that wait for one another, run by workers that steal.
//
// Every worker has a deque. It runs the task it made ready last, the one on the longest chain of
// tasks first; a worker without tasks steals, and parks when there is nothing to steal. Only idle
// workers steal: one that has set tasks going is not idle before they have ended. A task that is
// ready never waits: whoever takes it runs it.
//
// Source: Blumofe & Leiserson, "Scheduling multithreaded computations by work stealing" (1999).
#pragma once

#include <cstdint>
#include <vector>

#include "core/status.h"

namespace jaxrec {

/// Tasks 0 .. n - 1; a task comes after those that it waits for.
struct TaskGraph {
  std::vector<int32_t> waiting;     // for how many others each task waits
  std::vector<int32_t> first_next;  // [n + 1]: those that wait for a task, in `next`
  std::vector<int32_t> next;
  std::vector<double> priority;  // of tasks that are ready the greatest runs first
  std::vector<int32_t> home;     // worker whose deque a task starts in, if it waits for nothing

  int32_t size() const { return static_cast<int32_t>(waiting.size()); }
};

/// Builds a graph from edges; a priority is the cost of the dearest chain that begins with a task.
struct TaskEdges {
  std::vector<double> cost;  // of each task
  std::vector<int32_t> before, after;
};
Status make_task_graph(const TaskEdges& edges, TaskGraph& out);

/// What came of waiting.
enum class Waited { kNothing, kDone, kFailed };  // there was nothing to wait for; ended; failed

/// What a task is; called by the workers.
class Launcher {
 public:
  virtual ~Launcher() = default;
  /// At the start and the end of a worker, on its thread. Worker 0 is the calling thread. Neither
  /// may throw.
  virtual void begin(int32_t worker) = 0;
  virtual void end(int32_t worker) = 0;
  /// Runs a task, or sets it going. False: one failed, and nothing more is to be started.
  virtual bool launch(int32_t worker, int32_t task) = 0;
  /// Waits for one of the tasks that the worker has set going.
  virtual Waited wait(int32_t worker) = 0;
  /// Asked by the calling thread while it has nothing to do: whether to stop.
  virtual bool interrupted() = 0;
};

/// What one worker did.
struct WorkerReport {
  int64_t tasks = 0;
  int64_t steals = 0;
  int64_t idle_ns = 0;
};

/// Runs all tasks. False: one failed, the run was interrupted, or there was no memory; every worker
/// has stopped.
bool run_tasks(const TaskGraph& graph, int32_t workers, Launcher& launcher,
               std::vector<WorkerReport>& reports);

}  // namespace jaxrec
