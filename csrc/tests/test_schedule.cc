// Properties of whole schedules: they are the same for any number of workers, and they are right.
#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/assembler.h"
#include "tests/check.h"
#include "tests/job.h"
#include "tests/random_program.h"
#include "tests/scale.h"

namespace jaxrec {
namespace {

bool same_waves(const Layout& a, const Layout& b) {
  const auto key = [](const Wave& w) {
    return std::tie(w.cell, w.width, w.count, w.cell_row, w.first);
  };
  return std::equal(a.waves.begin(), a.waves.end(), b.waves.begin(), b.waves.end(),
                    [&](const Wave& x, const Wave& y) { return key(x) == key(y); });
}

bool same(const Schedule& a, const Schedule& b) {
  bool equal =
      a.frames->parents == b.frames->parents && a.frames->exports == b.frames->exports &&
      a.values.executed == b.values.executed && a.values.inputs == b.values.inputs &&
      a.values.results == b.values.results && a.layout.order == b.layout.order &&
      a.layout.output_rows == b.layout.output_rows && a.layout.out_starts == b.layout.out_starts &&
      a.layout.in_starts == b.layout.in_starts && same_waves(a.layout, b.layout) &&
      a.expansion.depth == b.expansion.depth && a.expansion.num_calls == b.expansion.num_calls;
  for (int32_t i = 0; equal && i < a.frames->size(); ++i)
    equal = a.frames->calls[i]->lane == b.frames->calls[i]->lane &&
            a.frames->site(i) == b.frames->site(i) &&
            a.frames->outline(i).function == b.frames->outline(i).function;
  return equal;
}

// No two frames of a shared function have the same arguments.
void check_shared(const Schedule& schedule) {
  std::set<std::tuple<int32_t, int32_t, std::vector<Word>>> met;
  for (const Call* call : schedule.frames->calls) {
    const Function& function = schedule.program.functions[call->callee];
    if (!function.memo) continue;
    std::vector<Word> control(call->control(), call->control() + function.control.size());
    CHECK(met.emplace(call->callee, call->lane, std::move(control)).second);
  }
}

// Preorder: a frame's children start right after it and after each other's subtrees, in call order,
// but for those that are shared and were there before.
void check_preorder(const Schedule& schedule) {
  const FrameTable& frames = *schedule.frames;
  std::vector<int32_t> end(frames.size());
  for (int32_t i = frames.size() - 1; i >= 0; --i) {
    int32_t next = i + 1;
    for (int32_t c = 0; c < frames.outline(i).num_calls; ++c) {
      const int32_t child = frames.children[frames.starts[i].child + c];
      if (child == next) next = end[next];
      else CHECK(child < next && end[child] <= next && frames.calls[child]->depth > 1);
    }
    end[i] = next;
  }
  for (size_t lane = 0; lane < frames.roots.size(); ++lane) {
    CHECK(frames.calls[frames.roots[lane]]->lane == static_cast<int32_t>(lane));
    CHECK(end[frames.roots[lane]] ==
          (lane + 1 < frames.roots.size() ? frames.roots[lane + 1] : frames.size()));
  }
}

// Every firing runs in a wave after those whose values it reads, and every output has its own row.
void check_waves(const Schedule& schedule, bool sweeps) {
  const auto& firings = schedule.values.firings;
  std::vector<int32_t> wave_of(schedule.frames->totals.output, -1);
  std::vector<std::vector<bool>> used;
  for (int32_t rows : schedule.layout.value_rows)
    used.emplace_back(rows + schedule.layout.pad, false);
  int64_t placed = 0;
  for (size_t w = 0; w < schedule.layout.waves.size(); ++w) {
    const Wave& wave = schedule.layout.waves[w];
    const Cell& cell = schedule.program.cells[wave.cell];
    CHECK(wave.count > 0 || sweeps);
    if (sweeps) CHECK(wave.cell == static_cast<int32_t>(w % schedule.program.cells.size()));
    for (int32_t i = 0; i < wave.count; ++i, ++placed) {
      const Firing& firing = firings[schedule.layout.order[wave.first + i]];
      CHECK(firing.cell == wave.cell);
      for (size_t k = 0; k < cell.inputs.size(); ++k) {
        const ValueId value = schedule.values.inputs[firing.input + k];
        if (value >= 0) CHECK(wave_of[value] >= 0 && wave_of[value] < static_cast<int32_t>(w));
      }
      for (size_t k = 0; k < cell.outputs.size(); ++k) {
        const int32_t row = schedule.layout.output_rows[firing.output + k];
        CHECK(row == schedule.layout.out_starts[w * schedule.layout.max_out + k] + i);
        CHECK(!used[cell.outputs[k]][row]);
        used[cell.outputs[k]][row] = true;
      }
    }
    for (int32_t i = 0; i < wave.count; ++i) {
      const Firing& firing = firings[schedule.layout.order[wave.first + i]];
      for (size_t k = 0; k < cell.outputs.size(); ++k)
        wave_of[firing.output + k] = static_cast<int32_t>(w);
    }
  }
  CHECK(placed == static_cast<int64_t>(firings.size()));
}

void check_any_workers(Job& job) {
  Schedule alone;
  const Status status = job.run(1, alone);
  if (status.ok()) {
    check_preorder(alone);
    check_waves(alone, job.sweeps);
    if (alone.program.has_memo()) check_shared(alone);
  } else {
    CHECK(status.code == Code::kRecursionLimit || status.code == Code::kIndex);
  }
  for (int64_t workers : {0, 2, 3, 4}) {
    Schedule shared;
    const Status again = job.run(workers, shared);
    CHECK(again.text == status.text);
    if (status.ok() && again.ok()) CHECK(same(alone, shared));
  }
}

void random_programs() {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    Job job = RandomProgram(seed).job();
    check_any_workers(job);
    job.sweep();
    check_any_workers(job);
  }
}

// fib(n): n < 2 ? leaf(n) : compose(fib(n - 1), fib(n - 2)), each n once.
ProgramSpec shared_fib() {
  Assembler code;
  code.constant(1, 2).op(Op::LT, {2, kInt, 0, 1});
  const int64_t branches = code.branch(2, 2);
  code.land(branches);
  code.constant(3, 1).op(Op::SUB, {4, kInt, 0, 3}).op(Op::SUB, {5, kInt, 0, 1});
  code.call(0, 0, {4}, {}, {0}).call(0, 1, {5}, {}, {1}).fire(1, {}, {0, 1}, {2}).ret({2});
  code.land(branches + 1);
  code.fire(0, {0}, {}, {0}).ret({0});
  return {
      {}, 1, {{{}, {0}, {kInt}}, {{0, 0}, {0}, {}}}, {{{kInt}, {}, {0}, 6, 3, code.words, true}}};
}

void shared_calls_run_once() {
  Job job;
  job.words = shared_fib().encode();
  job.roots = {30, 1, 30};
  check_any_workers(job);
  Schedule schedule;
  CHECK(job.run(0, schedule).ok());
  CHECK(schedule.expansion.num_calls == 31 + 1 + 31 && schedule.expansion.depth == 30);
  std::string path = "function0";
  for (int i = 1; i < 29; ++i) path += " -> function0[0]";
  CHECK(schedule.call_path(30) == path + " -> function0[1]");
  job.roots = {kLongChain};
  Schedule deep;
  CHECK(job.run(0, deep).ok());
  CHECK(deep.expansion.num_calls == kLongChain + 1 && deep.layout.waves.size() == kLongChain);
}

void a_shared_call_must_not_wait_for_itself() {
  Job job;
  ProgramSpec spec = tree_program();
  spec.functions[0].memo = true;
  job.words = spec.encode();
  job.outers = {{1, 2, 3, 1}, {4, 4, 4, 4, -1}};  // 1 -> 2 -> 3 -> 1
  job.outers[0].push_back(-1);
  job.roots = {0};
  job.names = "f\ni\nleft\nright";
  Schedule schedule;
  const Status status = job.run(0, schedule);
  CHECK(status.code == Code::kRecursionLimit);
  CHECK(status.text.find("f calls itself with equal arguments before it returns") !=
        std::string::npos);
  CHECK(status.text.find("f -> f[0] -> f[0] -> f[0] -> f[0] with arguments (i=1)") !=
        std::string::npos);
}

void shared_functions_have_no_data_arguments() {
  Job job;
  ProgramSpec spec = chain_program(true);
  spec.functions[0].memo = true;
  job.words = spec.encode();
  job.roots = {3};
  Schedule schedule;
  CHECK(job.run(0, schedule).text.find("a function that is shared has data arguments") !=
        std::string::npos);
}

void random_forests() {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    Job job = random_forest(seed, 1 + seed % 7, 600);
    check_any_workers(job);
    job.sweep();
    check_any_workers(job);
  }
  Job large = random_forest(99, 50, 30'000);
  check_any_workers(large);
}

// Large enough that workers come by themselves.
void large_tree() {
  constexpr int32_t kLeaves = 1 << 15;
  Job job;
  job.words = tree_program().encode();
  job.outers.resize(2);
  for (int32_t i = 0; i < 2 * kLeaves; ++i)
    for (int32_t side : {0, 1}) job.outers[side].push_back(i < kLeaves ? 2 * i + side : -1);
  job.roots = {1};
  check_any_workers(job);
}

void chains(bool fires) {
  Job job;
  job.words = chain_program(fires).encode();
  job.roots = {kLongChain};
  Schedule schedule;
  CHECK(job.run(0, schedule).ok());
  CHECK(schedule.expansion.depth == kLongChain + 1);
  CHECK(schedule.layout.waves.size() == (fires ? kLongChain : 0u));
  const ValueId result = schedule.values.results[schedule.frames->starts[0].result];
  CHECK(result == (fires ? kLongChain - 1 : ~0));  // the last firing, or the root's own argument
}

void cycles_end() {
  Job job;
  job.words = tree_program().encode();
  job.outers = {{0}, {0}};
  job.roots = {0};
  job.names = "f\ni\nleft\nright";
  job.call_limit = kLongChain;
  Schedule schedule;
  const Status status = job.run(0, schedule);
  CHECK(status.code == Code::kRecursionLimit);
  const std::string more = std::to_string(kLongChain / 1000 - 1) + ",997 more";
  CHECK(status.text.find("f -> f[0] -> f[0] -> ... (" + more +
                         ") ... -> f[0] with arguments (i=0)") != std::string::npos);
}

void capacity_names_the_number_needed() {
  Job job = random_forest(3, 4, 600);
  Schedule schedule;
  CHECK(job.run(1, schedule).ok());
  job.max_calls = schedule.expansion.num_calls - 1;
  Schedule refused;
  const Status status = job.run(1, refused);
  CHECK(status.code == Code::kCapacity && status.needed == schedule.expansion.num_calls);
}

void limits_are_exact() {
  Job job;
  job.words = chain_program(true).encode();
  job.roots = {100, 100, 100};
  for (int64_t workers : {1, 3}) {
    Schedule enough, calls, depth;
    job.call_limit = 303, job.depth_limit = 101;
    CHECK(job.run(workers, enough).ok());
    job.call_limit = 302;
    CHECK(job.run(workers, calls).code == Code::kRecursionLimit);
    job.call_limit = 303, job.depth_limit = 100;
    CHECK(job.run(workers, depth).text.find("nested more than 100 calls deep") !=
          std::string::npos);
  }
}

}  // namespace
}  // namespace jaxrec

int main() {
  using namespace jaxrec;
  random_programs();
  shared_calls_run_once();
  a_shared_call_must_not_wait_for_itself();
  shared_functions_have_no_data_arguments();
  random_forests();
  large_tree();
  chains(true);
  chains(false);
  cycles_end();
  capacity_names_the_number_needed();
  limits_are_exact();
  return report("schedule");
}
