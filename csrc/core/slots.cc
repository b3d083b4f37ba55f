#include "core/slots.h"

namespace jaxrec {
namespace {

struct Slot {
  int32_t writer = -1;           // the last task that wrote it
  std::vector<int32_t> readers;  // tasks that read it since
};

class EdgeBuilder {
 public:
  EdgeBuilder(const std::vector<SlotUse>& tasks, int32_t num_slots, TaskEdges& out)
      : tasks_(tasks), slots_(num_slots), last_edge_(tasks.size(), -1), out_(out) {}

  Status run() {
    for (size_t i = 0; i < tasks_.size(); ++i)
      if (!in_range(tasks_[i])) return internal_error("a task uses a slot that is not there");
    for (size_t i = 0; i < tasks_.size(); ++i) add(static_cast<int32_t>(i), tasks_[i]);
    return {};
  }

 private:
  bool in_range(const SlotUse& use) const {
    for (const std::vector<int32_t>* slots : {&use.reads, &use.writes})
      for (int32_t slot : *slots)
        if (slot < 0 || slot >= static_cast<int32_t>(slots_.size())) return false;
    return true;
  }

  void add(int32_t task, const SlotUse& use) {
    for (int32_t slot : use.reads) edge(slots_[slot].writer, task);
    for (int32_t slot : use.writes) {
      edge(slots_[slot].writer, task);
      for (int32_t reader : slots_[slot].readers) edge(reader, task);
    }
    for (int32_t slot : use.reads) slots_[slot].readers.push_back(task);
    for (int32_t slot : use.writes) slots_[slot] = {task, {}};
  }

  void edge(int32_t from, int32_t to) {
    // A task shares several slots with the one before it: one edge is enough.
    if (from < 0 || from == to || last_edge_[from] == to) return;
    last_edge_[from] = to;
    out_.before.push_back(from);
    out_.after.push_back(to);
  }

  const std::vector<SlotUse>& tasks_;
  std::vector<Slot> slots_;
  std::vector<int32_t> last_edge_;  // of each task, where to
  TaskEdges& out_;
};

}  // namespace

Status edges_of(const std::vector<SlotUse>& tasks, int32_t num_slots, TaskEdges& out) {
  return EdgeBuilder(tasks, num_slots, out).run();
}

}  // namespace jaxrec
