// The scheduler of stepped programs, by hand where something must be just so; `fuzz_stepper` runs
// random programs.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/pending.h"
#include "core/stepper.h"
#include "tests/assembler.h"
#include "tests/check.h"
#include "tests/job.h"
#include "tests/step_check.h"
#include "tests/step_run.h"

namespace jaxrec {
namespace {

bool has(const Status& status, const std::string& text) {
  return status.text.find(text) != std::string::npos;
}

void waiters_on_both_sides_are_called_once() {
  Pending values;
  std::vector<int32_t> called;
  const auto call = [&](int32_t who) { called.push_back(who); };
  const int32_t result = values.add(1), returned = values.add(1), other = values.add(1);
  values.wait(result, 0);
  values.wait(result, 1);
  values.wait(returned, 2);
  values.wait(returned, 3);
  values.join(result, returned, call);
  CHECK(called.empty() && values.find(result) == values.find(returned));
  values.wait(values.find(result), 4);
  values.join(other, result, call);
  values.join(result, other, call);  // known already
  values.make(values.find(other), 7, call);
  CHECK(called == std::vector<int32_t>({2, 3, 0, 1, 4}));
  CHECK(values.row(values.find(result)) == 7);
  const int32_t late = values.add(1);
  values.wait(late, 5);
  values.join(late, returned, call);
  CHECK(called.back() == 5 && called.size() == 6);
}

// countdown(n): n == 0 ? leaf(n) : countdown(n - 1), a chain of tail calls; main reads its result
// and goes on by it.
ProgramSpec main_after_chain() {
  Assembler main, chain;
  main.call(1, 0, {0}, {}, {0}).op(Op::IMPORT, {1, 0, 0});
  const int64_t branches = main.branch(1, 2);
  main.land(branches);
  main.fire(0, {0}, {}, {1}).ret({1});
  main.land(branches + 1);
  main.fire(1, {}, {0}, {1}).ret({1});
  const int64_t ends = chain.branch(0, 2);
  chain.land(ends);
  chain.fire(0, {0}, {}, {0}).ret({0});
  chain.land(ends + 1);
  chain.constant(1, 1).op(Op::SUB, {2, kInt, 0, 1}).call(1, 3, {2}, {}, {0}).ret({0});
  return {{},
          1,
          {{{}, {0}, {kInt}}, {{0}, {0}, {}}},
          {{{kInt}, {}, {0}, 2, 2, main.words}, {{kInt}, {}, {0}, 3, 1, chain.words}},
          {{0, kInt}}};
}

// f(n): x = leaf(n); n == 0 or x says so ? x : compose(x, f(n - 1)): a wave a call.
ProgramSpec wave_a_call() {
  Assembler code;
  code.fire(0, {0}, {}, {0}).op(Op::IMPORT, {1, 0, 0});
  code.constant(2, 0).op(Op::GE, {3, kInt, 1, 2}).op(Op::GT, {4, kInt, 0, 2});
  code.op(Op::AND, {3, static_cast<int64_t>(DType::kBool), 3, 4});
  const int64_t branches = code.branch(3, 2);
  code.land(branches);
  code.ret({0});
  code.land(branches + 1);
  code.constant(5, 1).op(Op::SUB, {6, kInt, 0, 5});
  code.call(0, 2, {6}, {}, {1}).fire(1, {}, {0, 1}, {2}).ret({2});
  return {{},
          1,
          {{{}, {0}, {kInt}}, {{0, 0}, {0}, {}}},
          {{{kInt}, {}, {0}, 7, 3, code.words}},
          {{0, kInt}}};
}

Job job_of(const ProgramSpec& spec, std::vector<int32_t> roots) {
  Job job;
  job.words = spec.encode();
  job.roots = std::move(roots);
  job.names = "main\nf\n";
  return job;
}

void long_chains_of_tail_calls() {
  Job job = job_of(main_after_chain(), {100'000, 0, 3});
  StepRun run(job);
  CHECK(run.run().ok());
  CHECK(run.calls == 3 + 100'001 + 1 + 4);  // main three times, and the chains
  CHECK(run.waves.size() == 2);             // all leaves, then all that follow
  Job small = job_of(main_after_chain(), {50, 0, 3, 17});
  Counts counts;
  check_job(small, counts);
}

void imports_wait_wave_by_wave() {
  Job job = job_of(wave_a_call(), {3000, 0, 2});
  StepRun run(job);
  CHECK(run.run().ok());
  CHECK(run.calls == 3001 + 1 + 3);
  CHECK(run.waves[0].row[1] == 3 && run.waves[1].row[1] == 2);  // roots in step with each other
  Replay(run).check();
}

// f(n, x): y = cell(x); n == 0 or y says so ? y : f(n - 1, y): one value is alive at a time.
void rows_are_handed_out_again() {
  Assembler code;
  code.fire(0, {0}, {0}, {1}).op(Op::IMPORT, {1, 1, 0});
  code.constant(2, 0).op(Op::GE, {3, kInt, 1, 2}).op(Op::GT, {4, kInt, 0, 2});
  code.op(Op::AND, {3, static_cast<int64_t>(DType::kBool), 3, 4});
  const int64_t branches = code.branch(3, 2);
  code.land(branches);
  code.ret({1});
  code.land(branches + 1);
  code.constant(5, 1).op(Op::SUB, {6, kInt, 0, 5});
  code.call(0, 2, {6}, {1}, {2}).ret({2});
  Job job =
      job_of({{}, 1, {{{0}, {0}, {kInt}}}, {{{kInt}, {0}, {0}, 7, 3, code.words}}, {{0, kInt}}},
             {300, 40, 2});
  Counts counts;
  check_job(job, counts);
  job.roots[0] = 3000;
  StepRun run(job);
  CHECK(run.run({{}, {}, true}).ok());
  CHECK(run.calls == 3001 + 41 + 3 && run.schedule.layout.value_rows[0] < 40);
  const Words rows = {5000}, cells = {5000};
  CHECK(has(run.run({rows, cells, true}), "only where there is no bound"));
}

void no_wave_at_all() {
  Assembler code;
  code.ret({0});
  ProgramSpec spec = {{}, 1, {}, {{{kInt}, {0}, {0}, 1, 1, code.words}}, {{0, kInt}}};
  for (const std::vector<int32_t>& roots : {std::vector<int32_t>{5, 6}, std::vector<int32_t>{}}) {
    Job job = job_of(spec, roots);
    Counts counts;
    check_job(job, counts);
    CHECK(counts.ok == 1 && counts.waves == 0);
  }
}

// sum(i): three cells that do not depend on one another, then three imports.
void several_imports_a_wave() {
  Assembler code;
  code.fire(0, {0}, {}, {0, 1}).fire(1, {0}, {}, {2});
  code.op(Op::IMPORT, {1, 2, 1}).op(Op::IMPORT, {2, 1, 0}).op(Op::IMPORT, {3, 0, 0});
  code.op(Op::IMPORT, {3, 0, 0}).op(Op::ADD, {1, kInt, 1, 2}).op(Op::ADD, {1, kInt, 1, 3});
  code.fire(0, {1}, {}, {0, 1}).ret({1});
  Job job = job_of({{},
                    2,
                    {{{}, {0, 0}, {kInt}}, {{}, {1}, {kInt}}},
                    {{{kInt}, {}, {0}, 4, 3, code.words}},
                    {{0, kInt}, {1, kInt}}},
                   {4, 9, 1});
  Counts counts;
  check_job(job, counts);
  CHECK(counts.ok == 1 && counts.waves == 3);
}

void capacity_is_an_error_that_says_so() {
  Job job = job_of(wave_a_call(), {10});
  job.max_calls = 11;
  StepRun enough(job);
  CHECK(enough.run().ok());
  job.max_calls = 10;
  StepRun calls(job);
  const Status status = calls.run();
  CHECK(status.code == Code::kCapacity && status.needed == 11);
  CHECK(has(status, "main made 11 calls so far in one invocation, but max_calls is 10"));
  job.max_calls = 11;
  // Two pads of 16; 11 leaves and 10 more.
  for (int64_t rows : {53, 52}) {
    const Words values = {rows}, cells = {1000, 1000};
    StepRun room(job);
    const Status tight = room.run({values, cells});
    CHECK(tight.ok() == (rows == 53));
    if (rows == 52) CHECK(has(tight, "for whose values max_calls=11 leaves no room"));
  }
  const Words wrong = {1, 2};
  StepRun sizes(job);
  CHECK(has(sizes.run({wrong, wrong}), "the room needs a number a class and a number a cell"));
}

void limits_come_with_the_path() {
  Job job = job_of(wave_a_call(), {1, 1000});
  job.names = "f\nn";
  job.depth_limit = 6;
  StepRun deep(job);
  const Status depth = deep.run();
  CHECK(depth.code == Code::kRecursionLimit);
  CHECK(has(depth, "nested more than 6 calls deep"));
  CHECK(has(depth, "f -> f[2] -> f[2] -> ... (3 more) ... -> f[2] with arguments (n=994)"));
  job.depth_limit = -1;
  job.call_limit = 5;
  StepRun many(job);
  const Status calls = many.run();
  CHECK(calls.code == Code::kRecursionLimit && has(calls, "more than 5 calls"));
}

// f(i): x = leaf(i); an element of an array at x, which is far outside.
void index_errors_come_with_the_path() {
  Assembler code;
  const int64_t branches = code.branch(0, 2);
  code.land(branches);
  code.fire(0, {0}, {}, {0}).op(Op::IMPORT, {1, 0, 0}).op(Op::LOAD, {2, 0}).list({1});
  code.ret({0});
  code.land(branches + 1);
  code.constant(1, 1).op(Op::SUB, {2, kInt, 0, 1});
  code.call(0, 4, {2}, {}, {0}).ret({0});
  Job job = job_of(
      {{{kInt, 1}}, 1, {{{}, {0}, {kInt}}}, {{{kInt}, {}, {0}, 3, 1, code.words}}, {{0, kInt}}},
      {2});
  job.outers = {{1, 2, 3}};
  job.names = "f\nn\ntable";
  StepRun run(job);
  const Status status = run.run();
  CHECK(status.code == Code::kIndex);
  CHECK(has(status, "table") && has(status, "f -> f[4] -> f[4]"));
}

void shared_calls_are_one_frame() {
  ProgramSpec spec = wave_a_call();
  spec.functions[0].memo = true;
  Job job = job_of(spec, {7, 7, 4});
  Counts counts;
  check_job(job, counts);
  CHECK(counts.ok == 1 && counts.calls == 8 + 8 + 5);
}

// f(n): f(x) where x is a cell's, or n again: it waits for its own result.
void a_shared_call_must_not_wait_for_itself() {
  for (const bool imports : {true, false}) {
    Assembler code;
    if (imports) {
      code.fire(0, {0}, {}, {1}).op(Op::IMPORT, {1, 1, 0}).constant(2, 0);
      code.op(Op::MUL, {1, kInt, 1, 2});
      code.call(0, 1, {1}, {}, {0}).fire(1, {}, {0}, {0}).ret({0});
    } else {
      code.call(0, 1, {0}, {}, {0}).ret({0});
    }
    Job job = job_of({{},
                      1,
                      {{{}, {0}, {kInt}}, {{0}, {0}, {}}},
                      {{{kInt}, {}, {0}, 3, 2, code.words, true}},
                      {{0, kInt}}},
                     {3});
    job.names = "f\nn";
    StepRun run(job);
    const Status status = run.run();
    CHECK(status.code == Code::kRecursionLimit);
    CHECK(has(status, "f calls itself with equal arguments before it returns"));
    CHECK(has(status, imports ? "f -> f[1] -> f[1] with arguments (n=0)"
                              : "f -> f[1] with arguments (n=3)"));
  }
}

void steps_in_the_wrong_order_are_refused() {
  Job job = job_of(wave_a_call(), {3});
  std::unique_ptr<Stepper> stepper;
  CHECK(job.start(stepper, {}).ok());
  Schedule schedule;
  CHECK(has(stepper->finish(schedule), "finished before its last step"));
  CHECK(has(stepper->step({}), "a tape for each import"));
  CHECK(has(stepper->step({}), "a step after the last one"));
  StepRun run(job);
  CHECK(run.run().ok());
  CHECK(has(run.stepper->finish(schedule), "finished before its last step"));
  CHECK(has(run.stepper->step({}), "a step after the last one"));
}

void tapes_and_buffers_must_fit() {
  Job job = job_of(wave_a_call(), {3});
  std::vector<int32_t> tape(16);
  int64_t rows = 15;
  std::unique_ptr<Stepper> stepper;
  CHECK(job.start(stepper, {}).ok());
  CHECK(has(stepper->step({{tape.data(), DType::kI32, {&rows, 1}}}), "too few rows"));
  CHECK(job.start(stepper, {}).ok());
  rows = 16;
  CHECK(has(stepper->step({{tape.data(), DType::kF32, {&rows, 1}}}), "not a vector of its type"));
  CHECK(job.start(stepper, {}).ok());
  CHECK(stepper->step({{tape.data(), DType::kI32, {&rows, 1}}}).ok());
  std::vector<int32_t> row(3);
  CHECK(has(stepper->write_wave(0, {row.data(), row.size()}), "more columns"));
  CHECK(has(stepper->write_operands(0, {}), "as many operands as its cell"));
}

// Both cells of `wave_a_call`, at a width of 8: six columns, then reads, exports and lanes.
void a_sweep_is_one_array() {
  Job job = job_of(wave_a_call(), {3, 0});
  job.sweep();
  std::unique_ptr<Stepper> stepper;
  CHECK(job.start(stepper, {}).ok());
  int64_t rows = 32;
  std::vector<int32_t> tape(rows, 1);
  const auto step = [&] { return stepper->step({{tape.data(), DType::kI32, {&rows, 1}}}); };
  CHECK(step().ok() && stepper->waves().size() == 2);
  std::vector<int32_t> sweep(6 + 8 + 8 + 6 + 8 + 8 + 8, -7);
  CHECK(has(stepper->write_sweep({sweep.data(), sweep.size() - 2}), "another size"));
  CHECK(stepper->write_sweep({sweep.data(), sweep.size()}).ok());
  const std::vector<int32_t> leaf(sweep.begin(), sweep.begin() + 22);
  CHECK(leaf == std::vector<int32_t>({0, 2, 8, 8, 0, 0, 3, 0, 3, 3, 3, 3, 3, 3,  // n
                                      0, 1, 0, 0, 0, 0, 0, 0}));                 // lanes
  const std::vector<int32_t> compose(sweep.begin() + 22, sweep.end());
  std::vector<int32_t> empty(30, 0);
  empty[0] = 1, empty[2] = 8, empty[3] = 10;
  CHECK(compose == empty);
  while (!stepper->waves().empty()) CHECK(step().ok());
  CHECK(stepper->write_sweep({sweep.data(), sweep.size()}).ok() && sweep[0] == -1);
}

}  // namespace
}  // namespace jaxrec

int main() {
  using namespace jaxrec;
  waiters_on_both_sides_are_called_once();
  long_chains_of_tail_calls();
  imports_wait_wave_by_wave();
  rows_are_handed_out_again();
  no_wave_at_all();
  several_imports_a_wave();
  capacity_is_an_error_that_says_so();
  limits_come_with_the_path();
  index_errors_come_with_the_path();
  shared_calls_are_one_frame();
  a_shared_call_must_not_wait_for_itself();
  steps_in_the_wrong_order_are_refused();
  tapes_and_buffers_must_fit();
  a_sweep_is_one_array();
  return report("stepper");
}
