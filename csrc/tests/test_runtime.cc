// Every task runs once, after those it waits for, whoever steals it; a failure stops everyone.
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>

#include "core/runtime.h"
#include "tests/check.h"

namespace jaxrec {
namespace {

class Recorder : public Launcher {
 public:
  Recorder(int32_t tasks, const TaskEdges& edges, int32_t failing = -1)
      : edges_(edges), failing_(failing), done_(new std::atomic<int32_t>[tasks]) {
    for (int32_t i = 0; i < tasks; ++i) done_[i].store(0);
    for (size_t k = 0; k < edges.before.size(); ++k) {
      if (before_.size() <= static_cast<size_t>(edges.after[k])) before_.resize(tasks);
      before_[edges.after[k]].push_back(edges.before[k]);
    }
    before_.resize(tasks);
  }
  void begin(int32_t) override { ++open_; }
  void end(int32_t) override { --open_; }
  bool launch(int32_t, int32_t task) override {
    for (int32_t from : before_[task])
      if (done_[from].load() != 1) ordered_ = false;
    if (task == failing_) return false;
    done_[task].fetch_add(1);
    ++ran_;
    return true;
  }
  Waited wait(int32_t) override { return Waited::kNothing; }
  bool interrupted() override { return false; }

  int32_t ran() const { return ran_.load(); }
  bool ordered() const { return ordered_.load(); }
  int32_t open() const { return open_.load(); }

 private:
  const TaskEdges& edges_;
  const int32_t failing_;
  std::unique_ptr<std::atomic<int32_t>[]> done_;
  std::vector<std::vector<int32_t>> before_;
  std::atomic<int32_t> ran_{0}, open_{0};
  std::atomic<bool> ordered_{true};
};

TaskEdges random_edges(int32_t tasks, unsigned seed) {
  std::mt19937 random(seed);
  TaskEdges edges;
  edges.cost.assign(tasks, 1.0);
  for (int32_t i = 1; i < tasks; ++i)
    for (int k = 0; k < 2; ++k)
      if (random() % 4 != 0) {
        edges.before.push_back(static_cast<int32_t>(random() % i));
        edges.after.push_back(i);
      }
  return edges;
}

void check_random_graphs() {
  for (unsigned seed = 0; seed < 60; ++seed) {
    const int32_t tasks = 1 + static_cast<int32_t>(seed * 37 % 900);
    const TaskEdges edges = random_edges(tasks, seed);
    TaskGraph graph;
    CHECK(make_task_graph(edges, graph).ok());
    for (int32_t workers : {1, 2, 4}) {
      Recorder recorder(tasks, edges);
      std::vector<WorkerReport> reports;
      CHECK(run_tasks(graph, workers, recorder, reports));
      int64_t counted = 0;
      for (const WorkerReport& report : reports) counted += report.tasks;
      CHECK(recorder.ran() == tasks && counted == tasks);
      CHECK(recorder.ordered() && recorder.open() == 0);
    }
  }
}

void check_failures() {
  const int32_t tasks = 500;
  const TaskEdges edges = random_edges(tasks, 5);
  TaskGraph graph;
  CHECK(make_task_graph(edges, graph).ok());
  for (int32_t workers : {1, 2, 4})
    for (int32_t failing : {0, 250, 499}) {
      Recorder recorder(tasks, edges, failing);
      std::vector<WorkerReport> reports;
      CHECK(!run_tasks(graph, workers, recorder, reports));
      CHECK(recorder.ran() < tasks && recorder.open() == 0);
    }
}

// The only task ends when the run is interrupted: the calling thread, which waits, must ask.
class Stuck : public Launcher {
 public:
  void begin(int32_t) override {}
  void end(int32_t) override {}
  bool launch(int32_t worker, int32_t) override {
    if (worker == 0) return true;
    while (!asked_.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return true;
  }
  Waited wait(int32_t) override { return Waited::kNothing; }
  bool interrupted() override { return asked_.store(true), true; }

 private:
  std::atomic<bool> asked_{false};
};

void check_interrupt() {
  TaskEdges edges;
  edges.cost = {1.0, 1.0, 1.0};
  edges.before = {0, 1};
  edges.after = {2, 2};
  TaskGraph graph;
  CHECK(make_task_graph(edges, graph).ok());
  Stuck stuck;
  std::vector<WorkerReport> reports;
  // Worker 0 may have taken all tasks before the other came: then nothing was stuck.
  const bool all = run_tasks(graph, 2, stuck, reports);
  CHECK(reports.size() == 2 && (all ? reports[1].tasks == 0 : reports[1].tasks > 0));
}

// What worker 0 sets going ends when the other worker has come to its own task.
class Busy : public Launcher {
 public:
  void begin(int32_t) override {}
  void end(int32_t) override {}
  bool launch(int32_t worker, int32_t task) override {
    by_[task].store(worker);
    return true;
  }
  Waited wait(int32_t worker) override {
    if (worker != 0 || ended_) return Waited::kNothing;
    while (by_[1].load() < 0) std::this_thread::yield();
    ended_ = true;
    return Waited::kDone;
  }
  bool interrupted() override { return false; }
  int32_t by(int32_t task) const { return by_[task].load(); }

 private:
  bool ended_ = false;
  std::atomic<int32_t> by_[2] = {{-1}, {-1}};
};

void check_busy_workers_do_not_steal() {
  TaskEdges edges;
  edges.cost = {1.0, 1.0};
  TaskGraph graph;
  CHECK(make_task_graph(edges, graph).ok());
  std::vector<WorkerReport> reports;
  for (int i = 0; i < 100; ++i) {
    Busy busy;
    CHECK(run_tasks(graph, 2, busy, reports));
    CHECK(busy.by(0) == 1 || busy.by(1) == 1);  // worker 1 may have been first, and steal both
  }
}

void check_critical_path() {
  TaskEdges edges;
  edges.cost = {1.0, 1.0, 5.0, 1.0};
  edges.before = {0, 1, 2};
  edges.after = {2, 3, 3};
  TaskGraph graph;
  CHECK(make_task_graph(edges, graph).ok());
  CHECK(graph.priority[0] == 7.0 && graph.priority[1] == 2.0);
  edges.before = {2};
  edges.after = {1};
  CHECK(!make_task_graph(edges, graph).ok());
}

}  // namespace
}  // namespace jaxrec

int main() {
  jaxrec::check_random_graphs();
  jaxrec::check_failures();
  jaxrec::check_interrupt();
  jaxrec::check_busy_workers_do_not_steal();
  jaxrec::check_critical_path();
  return jaxrec::report("runtime");
}
