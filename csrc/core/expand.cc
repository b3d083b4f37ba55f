#include "core/expand.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <thread>

#include "core/denormals.h"
#include "core/names.h"
#include "core/processors.h"

namespace jaxrec {
namespace {

constexpr size_t kSerialFrames = 16'384;  // below so many a thread costs more than it gives
constexpr int64_t kMostFrames = std::numeric_limits<int32_t>::max() - 1;

class Expander {
 public:
  Expander(const Program& program, const std::vector<Outer>& outers,
           const std::vector<Array>& roots, const ExpandOptions& options, Expansion& out)
      : program_(program), outers_(outers), roots_(roots), options_(options), out_(out) {
    out.shared.limits = {bounded(options.call_limit), bounded(options.depth_limit)};
  }

  Worker::Fault run() {
    const FlushDenormals flush;
    Worker& first = add_worker();
    Segment& segment = first.new_segment();
    push_roots(first, segment);
    Call* next = tasks_.pop();
    if (options_.workers == 0) next = first.drain(tasks_, next, segment, kSerialFrames);
    if (next != nullptr) run_workers(most_workers(), next, segment);
    return finish();
  }

 private:
  static int64_t bounded(int64_t limit) {
    return limit < 0 ? kMostFrames : std::min(limit, kMostFrames);
  }

  // What is shared must be met depth first, so by one worker.
  int32_t most_workers() const {
    if (program_.has_memo()) return 1;
    if (options_.workers != 0) return options_.workers;
    return automatic_workers();
  }

  Worker& add_worker() {
    const int32_t number = static_cast<int32_t>(out_.workers.size());
    out_.workers.push_back(std::make_unique<Worker>(number, program_, outers_, out_.shared));
    return *out_.workers.back();
  }

  void push_roots(Worker& worker, Segment& segment) {
    const size_t num_control = roots_.size();
    for (int64_t lane = options_.lanes - 1; lane >= 0; --lane) {
      Call* call =
          new_call(worker.arena,
                   {segment.number, Call::kRoot, 0, program_.entry, static_cast<int32_t>(lane), 1},
                   num_control);
      for (size_t i = 0; i < num_control; ++i)
        call->control()[i] = load_element(roots_[i].data, roots_[i].dtype, lane);
      tasks_.push(call);
    }
  }

  // The first worker, on this thread, goes on where it is; the others start by stealing.
  void run_workers(int32_t count, Call* next, Segment& segment) {
    Worker& first = *out_.workers[0];
    if (count == 1) {
      first.drain(tasks_, next, segment, std::numeric_limits<size_t>::max());
      return;
    }
    while (static_cast<int32_t>(out_.workers.size()) < count) add_worker();
    for (Call* call : tasks_.calls()) first.deque.push(call);
    out_.shared.active = 1;
    std::vector<std::thread> threads;
    threads.reserve(count);
    try {
      for (int32_t i = 1; i < count; ++i) {
        out_.shared.active.fetch_add(1);
        threads.emplace_back([this, i] {
          const FlushDenormals flush;
          guarded(*out_.workers[i], [&] { out_.workers[i]->steal_and_drain(out_.workers); });
        });
      }
    } catch (const std::exception&) {
      out_.shared.active.fetch_sub(1);  // no more threads to be had: those that run will do
    }
    guarded(first, [&] {
      first.drain(first.deque, next, segment, std::numeric_limits<size_t>::max());
      first.steal_and_drain(out_.workers);
    });
    for (std::thread& thread : threads) thread.join();
  }

  template <class Work>
  static void guarded(Worker& worker, Work&& work) {
    try {
      work();
    } catch (const std::exception&) {  // memory, whatever the container calls it
      worker.fail(Worker::Fault::kMemory, nullptr);
    }
  }

  Worker::Fault finish() {
    for (const auto& worker : out_.workers) {
      if (worker->fault != Worker::Fault::kNone) return worker->fault;
      out_.num_calls += worker->num_calls;
      out_.depth = std::max(out_.depth, worker->depth);
    }
    if (out_.num_calls > out_.shared.limits.calls) return Worker::Fault::kCalls;
    order_segments();
    return Worker::Fault::kNone;
  }

  // A segment, then those stolen from it, the last stolen first, each with its own stolen ones.
  void order_segments() {
    std::vector<std::vector<Segment*>> stolen(out_.shared.segments);  // by origin
    for (const auto& worker : out_.workers)
      for (const auto& segment : worker->segments)
        if (segment->origin >= 0) stolen[segment->origin].push_back(segment.get());
    out_.bases.resize(stolen.size());
    std::vector<Segment*> stack = {out_.workers[0]->segments[0].get()};
    int32_t base = 0;
    while (!stack.empty()) {
      Segment* segment = stack.back();
      stack.pop_back();
      out_.bases[segment->number] = base;
      base += static_cast<int32_t>(segment->calls.size());
      out_.segments.push_back(segment);
      std::vector<Segment*>& next = stolen[segment->number];
      std::sort(next.begin(), next.end(),
                [](const Segment* a, const Segment* b) { return a->steal < b->steal; });
      stack.insert(stack.end(), next.begin(), next.end());
    }
  }

  const Program& program_;
  const std::vector<Outer>& outers_;
  const std::vector<Array>& roots_;
  const ExpandOptions& options_;
  Expansion& out_;
  Stack tasks_;
};

// From the root to `call`, of an expansion by one worker.
std::vector<PathStep> path_to(const Worker& worker, const Call* call) {
  std::vector<PathStep> path;
  path.reserve(call->depth);
  const Segment& segment = *worker.segments[0];
  while (call->parent != Call::kRoot) {
    const Outline& caller = worker.table.outlines[segment.outlines[call->parent]];
    path.push_back({call->callee, worker.table.calls[caller.calls + call->ordinal].site});
    call = segment.calls[call->parent];
  }
  path.push_back({call->callee, -1});
  std::reverse(path.begin(), path.end());
  return path;
}

Status describe(const Program& program, const std::vector<Outer>& outers,
                const ExpandOptions& options, const Expansion& expansion) {
  const Worker& worker = *expansion.workers[0];
  const Names names(program, options.names);
  if (worker.fault == Worker::Fault::kMemory) return memory_error(names.function(0));
  const std::vector<PathStep> path = path_to(worker, worker.fault_call);
  switch (worker.fault) {
    case Worker::Fault::kIndex:
      return index_error(names, path, worker.index_fault(), outers[worker.index_fault().outer]);
    case Worker::Fault::kDepth:
      return depth_limit_error(program, names, path, *worker.fault_call,
                               expansion.shared.limits.depth);
    case Worker::Fault::kItself: return itself_error(program, names, path, *worker.fault_call);
    default:
      return call_limit_error(program, names, path, *worker.fault_call,
                              expansion.shared.limits.calls);
  }
}

}  // namespace

Status expand(const Program& program, const std::vector<Outer>& outers,
              const std::vector<Array>& roots, const ExpandOptions& options, Expansion& out) {
  if (Expander(program, outers, roots, options, out).run() == Worker::Fault::kNone) return {};
  // Several workers find faults in any order. One worker finds the first in preorder, so the
  // message is always the same.
  out.workers.clear();
  Expansion alone;
  ExpandOptions serial = options;
  serial.workers = 1;
  if (Expander(program, outers, roots, serial, alone).run() == Worker::Fault::kNone)
    return memory_error(Names(program, options.names).function(0));  // alone may not repeat
  return describe(program, outers, options, alone);
}

}  // namespace jaxrec
