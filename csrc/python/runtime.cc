// Python calls as tasks of the runtime.
#include "core/runtime.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/slots.h"
#include "python/arrays.h"
#include "python/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace jaxrec {
namespace {

using Clock = std::chrono::steady_clock;

/// `fun(constant, *slots) -> [token, *new slots]`; no constant if it is None.
struct PyTask {
  nb::object fun, constant;
  SlotUse use;
  std::vector<int32_t> frees;  // slots that nothing reads afterwards
};

struct TaskTime {
  int32_t worker = -1;
  int64_t start = 0, launched = 0;  // ns from the start of the run
};

/// What a run did, and how it ended.
struct RunReport {
  std::vector<WorkerReport> workers;
  std::vector<TaskTime> times;
  nb::object error = nb::none();
  int32_t failed = -1;  // the task, if one did
};

struct RunOptions {
  int32_t workers;
  int64_t ahead;     // launches of a worker that may be under way
  nb::object check;  // called with a task and its token once that is there
  nb::object scope;  // makes the context manager that a worker runs in
};

/// Launches tasks: holds the interpreter lock for the launch only, since XLA gives it back while it
/// computes.
class PyLauncher : public Launcher {
 public:
  PyLauncher(const std::vector<PyTask>& tasks, nb::list slots, const RunOptions& options,
             RunReport& report)
      : tasks_(tasks),
        slots_(std::move(slots)),
        options_(options),
        report_(report),
        states_(options.workers),
        start_(Clock::now()) {
    report.times.resize(tasks.size());
  }

  void begin(int32_t worker) override {
    State& state = states_[worker];
    // One thread state for all launches: making one takes longer than a launch.
    state.gil = PyGILState_Ensure();
    tried(-1, [&] {
      nb::object scope = options_.scope();
      scope.attr("__enter__")();
      state.scope = std::move(scope);  // entered, so to be left
    });
    state.thread = PyEval_SaveThread();
  }

  void end(int32_t worker) override {
    State& state = states_[worker];
    PyEval_RestoreThread(state.thread);
    while (!state.under_way.empty()) {
      if (!failed_.load()) wait_for_oldest(state);
      else state.under_way.pop_front();
    }
    if (state.scope.is_valid())
      tried(-1, [&] { state.scope.attr("__exit__")(nb::none(), nb::none(), nb::none()); });
    state.scope.reset();
    PyGILState_Release(state.gil);
  }

  bool launch(int32_t worker, int32_t number) override {
    TaskTime& time = report_.times[number];
    const nb::gil_scoped_acquire hold;
    if (failed_.load() || (worker == 0 && !check_signals())) return false;
    time.worker = worker;
    time.start = now();
    tried(number, [&] { states_[worker].under_way.emplace_back(number, call(tasks_[number])); });
    while (!failed_.load() &&
           static_cast<int64_t>(states_[worker].under_way.size()) > options_.ahead)
      wait_for_oldest(states_[worker]);
    time.launched = now();
    return !failed_.load();
  }

  Waited wait(int32_t worker) override {
    State& state = states_[worker];
    if (state.under_way.empty()) return Waited::kNothing;
    const nb::gil_scoped_acquire hold;
    wait_for_oldest(state);
    return failed_.load() ? Waited::kFailed : Waited::kDone;
  }

  bool interrupted() override {
    const nb::gil_scoped_acquire hold;
    return !check_signals();
  }

 private:
  struct State {
    PyGILState_STATE gil{};
    PyThreadState* thread = nullptr;
    nb::object scope;
    std::deque<std::pair<int32_t, nb::object>> under_way;  // tasks and their tokens
  };

  int64_t now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count();
  }

  nb::object call(const PyTask& task) {
    std::vector<nb::object> args;
    args.reserve(1 + task.use.reads.size());
    if (!task.constant.is_none()) args.push_back(task.constant);
    for (int32_t slot : task.use.reads) args.push_back(nb::borrow(slots_[slot]));
    std::vector<PyObject*> pointers;
    pointers.reserve(args.size());
    for (const nb::object& arg : args) pointers.push_back(arg.ptr());
    const nb::object made =
        nb::steal(PyObject_Vectorcall(task.fun.ptr(), pointers.data(), pointers.size(), nullptr));
    if (!made.is_valid()) throw nb::python_error();
    if (nb::len(made) != 1 + task.use.writes.size())
      throw std::runtime_error("a task returned the wrong number of values");
    for (size_t k = 0; k < task.use.writes.size(); ++k) slots_[task.use.writes[k]] = made[k + 1];
    for (int32_t slot : task.frees) slots_[slot] = nb::none();
    return made[0];
  }

  // Needs the lock; waiting gives it back.
  void wait_for_oldest(State& state) {
    auto [task, token] = std::move(state.under_way.front());
    state.under_way.pop_front();
    tried(task, [&] { options_.check(task, token); });
  }

  bool check_signals() {
    if (PyErr_CheckSignals() == 0) return true;
    fail(nb::borrow(nb::python_error().value()), -1);
    return false;
  }

  // All below need the lock.
  template <class Work>
  void tried(int32_t task, Work&& work) {
    try {
      work();
    } catch (nb::python_error& error) {
      fail(nb::borrow(error.value()), task);
    } catch (const std::exception& error) {
      fail(nb::handle(PyExc_RuntimeError)(error.what()), task);
    }
  }

  // The first failure is the one that is told.
  void fail(nb::object error, int32_t task) {
    if (failed_.exchange(true)) return;
    report_.error = std::move(error);
    report_.failed = task;
  }

  const std::vector<PyTask>& tasks_;
  nb::list slots_;
  const RunOptions& options_;
  RunReport& report_;
  std::vector<State> states_;  // a worker uses its own
  const Clock::time_point start_;
  std::atomic<bool> failed_{false};
};

std::vector<int32_t> numbers(nb::handle items) { return nb::cast<std::vector<int32_t>>(items); }

std::vector<PyTask> read_tasks(const nb::list& items, std::vector<SlotUse>& uses,
                               std::vector<double>& costs) {
  std::vector<PyTask> tasks;
  tasks.reserve(nb::len(items));
  for (nb::handle item : items) {
    const nb::tuple parts = nb::cast<nb::tuple>(item);
    PyTask task{nb::borrow(parts[0]),
                nb::borrow(parts[1]),
                {numbers(parts[2]), numbers(parts[3])},
                numbers(parts[5])};
    uses.push_back(task.use);
    costs.push_back(nb::cast<double>(parts[4]));
    tasks.push_back(std::move(task));
  }
  return tasks;
}

std::unique_ptr<RunReport> run_python(const nb::list& items, const nb::list& slots, int64_t workers,
                                      int64_t ahead, nb::object check, nb::object scope) {
  std::vector<SlotUse> uses;
  TaskEdges edges;
  const std::vector<PyTask> tasks = read_tasks(items, uses, edges.cost);
  TaskGraph graph;
  Status status = edges_of(uses, static_cast<int32_t>(nb::len(slots)), edges);
  if (status.ok()) status = make_task_graph(edges, graph);
  if (!status.ok()) throw nb::value_error(status.text.c_str());
  const int32_t used = static_cast<int32_t>(std::min<int64_t>(
      std::max<int64_t>(workers, 1), std::max<int64_t>(static_cast<int64_t>(tasks.size()), 1)));
  const RunOptions options{used, ahead, std::move(check), std::move(scope)};
  auto report = std::make_unique<RunReport>();
  PyLauncher launcher(tasks, slots, options, *report);
  const bool ended = released([&] { return run_tasks(graph, used, launcher, report->workers); });
  if (!ended && report->error.is_none()) throw std::bad_alloc();
  return report;
}

template <class Item, class Of>
nb::list column(const std::vector<Item>& rows, Of of) {
  nb::list out;
  for (const Item& row : rows) out.append(of(row));
  return out;
}

}  // namespace

void bind_runtime(nb::module_& m) {
  nb::class_<RunReport>(m, "RunReport", "What a run of tasks did, and how it ended.")
      .def(
          "take_error",
          // Only once: an exception leads to the frames that hold this report.
          [](RunReport& r) { return std::exchange(r.error, nb::none()); },
          "The exception that ended the run, or None.")
      .def_ro("failed", &RunReport::failed, "The task that raised it, or -1.")
      .def_prop_ro("workers",
                   [](const RunReport& r) {
                     return column(r.workers, [](const WorkerReport& w) {
                       return nb::make_tuple(w.tasks, w.steals, w.idle_ns);
                     });
                   })
      .def_prop_ro("times", [](const RunReport& r) {
        return column(r.times, [](const TaskTime& t) {
          return nb::make_tuple(t.worker, t.start, t.launched);
        });
      });
  m.def("run_tasks", &run_python, "tasks"_a, "slots"_a, "workers"_a, "ahead"_a, "check"_a,
        "scope"_a,
        "Runs tasks (fun, constant, slots read, slots written, cost, slots freed): each calls fun "
        "with the constant and the slots it reads, and gets a token and the slots it writes.");
}

}  // namespace jaxrec
