// The scheduler of stepped programs: by hand where something must be just so, and against plain
// recursion on random programs.
//
//   test_stepper [random programs] [first seed]
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/pending.h"
#include "core/stepper.h"
#include "tests/assembler.h"
#include "tests/check.h"
#include "tests/random_program.h"
#include "tests/step_run.h"
#include "tests/tables.h"

namespace jaxrec {
namespace {

bool has(const Status& status, const std::string& text) {
  return status.text.find(text) != std::string::npos;
}

// What a finished schedule says of the tapes, compared with the tapes as they were run.
class Replay {
 public:
  explicit Replay(const StepRun& run)
      : run_(run),
        schedule_(run.schedule),
        program_(run.schedule.program),
        layout_(run.schedule.layout),
        tables_(run.schedule),
        rows_(program_.num_classes) {
    CHECK(fill(schedule_, tables_.arrays()).ok());
    tapes_ = StepRun::root_tapes(program_, layout_.pad, layout_.lanes);
    for (int32_t c = 0; c < program_.num_classes; ++c)
      tapes_[c].resize(layout_.value_rows[c] + 2 * layout_.pad, -1);
    wanted_.resize(program_.num_classes);
  }

  void check() {
    CHECK(run_.waves.size() == layout_.waves.size());
    for (size_t w = 0; w < layout_.waves.size(); ++w) wave(w);
    for (int32_t c = 0; c < program_.num_classes; ++c) {
      const auto begin = tapes_[c].begin() + layout_.pad, end = begin + layout_.value_rows[c];
      CHECK(std::equal(begin, end, run_.tapes[c].begin() + layout_.pad));
    }
    results();
    readers();
  }

  int32_t value(int32_t c, int32_t row) const { return tapes_[c][row]; }

  int32_t result(size_t k, int64_t lane) {
    return value(program_.entry_function().results[k], tables_.ints(tables_.results + k)[lane]);
  }

  std::vector<Evaluator::Made> collected() {
    std::vector<Evaluator::Made> out;
    const Function& entry = program_.entry_function();
    for (size_t i = 0; i < layout_.collected.size(); ++i) {
      Evaluator::Made made{tables_.ints(tables_.collected_lanes)[i], {}, {}};
      for (size_t k = 0; k < entry.control.size(); ++k)
        made.control.push_back(tables_.ints(tables_.collected_lanes + 1 + k)[i]);
      for (size_t k = 0; k < entry.results.size(); ++k)
        made.results.push_back(
            value(entry.results[k], tables_.ints(tables_.collected_results + k)[i]));
      out.push_back(made);
    }
    return out;
  }

 private:
  const int32_t* row(size_t wave) {
    return tables_.ints(1) + wave * static_cast<size_t>(TableBuffers::columns(layout_));
  }

  void wave(size_t w) {
    const int32_t* at = row(w);
    const StepRun::Ran& ran = run_.waves[w];
    CHECK(std::equal(ran.row.begin(), ran.row.end(), at));
    const int32_t number = at[0] / static_cast<int32_t>(schedule_.num_widths);
    const Cell& cell = program_.cells[number];
    for (int32_t i = 0; i < at[1]; ++i) firing(number, cell, at, ran, i);
  }

  void firing(int32_t number, const Cell& cell, const int32_t* at, const StepRun::Ran& ran,
              int32_t i) {
    const TableBuffers::CellTables& tables = tables_.cells[number];
    const int32_t cell_row = at[2] + i;
    Values32 inputs, exports;
    for (size_t k = 0; k < cell.inputs.size(); ++k) {
      const int32_t read = tables_.ints(tables.reads + k)[cell_row];
      CHECK(read == ran.reads[k][i]);
      inputs.push_back(value(cell.inputs[k], read));
      wanted_[cell.inputs[k]].push_back({read, at[3 + layout_.max_out + k] + i});
    }
    for (size_t k = 0; k < cell.exports.size(); ++k) {
      exports.push_back(tables_.ints(tables.exports + k)[cell_row]);
      CHECK(exports.back() == ran.exports[k][i]);
    }
    const int32_t lane = tables_.ints(tables.lanes)[cell_row];
    CHECK(lane == ran.lanes[i]);
    for (size_t k = 0; k < cell.outputs.size(); ++k) {
      int32_t& item = tapes_[cell.outputs[k]][at[3 + k] + i];
      CHECK(item == -1);
      item = cell_output(number, k, inputs, exports, lane);
      note(cell.outputs[k], at[3 + k] + i, tables.readers + k, cell_row);
    }
  }

  // That the readers of a value row stand at `place` of a table.
  void note(int32_t c, int32_t value_row, size_t table, int32_t place) {
    const int32_t* starts = tables_.ints(table);
    for (int32_t r = starts[place]; r < starts[place + 1]; ++r)
      rows_[c].push_back({value_row, tables_.ints(tables_.reader_rows + c)[r]});
  }

  void results() {
    const Function& entry = program_.entry_function();
    const int32_t* starts = tables_.ints(0) + 4;
    for (size_t k = 0; k < entry.results.size(); ++k)
      for (int32_t lane = 0; lane < layout_.lanes; ++lane)
        wanted_[entry.results[k]].push_back(
            {tables_.ints(tables_.results + k)[lane], starts[k] + lane});
    if (!schedule_.collect) return;
    starts += entry.results.size();
    for (size_t k = 0; k < entry.results.size(); ++k)
      for (size_t i = 0; i < layout_.collected.size(); ++i)
        wanted_[entry.results[k]].push_back(
            {tables_.ints(tables_.collected_results + k)[i], starts[k] + static_cast<int32_t>(i)});
  }

  // Reads and readers say the same, one from each side.
  void readers() {
    const Function& entry = program_.entry_function();
    std::vector<int32_t> next(program_.num_classes, layout_.pad);
    for (size_t k = 0; k < entry.data.size(); ++k)
      for (int32_t lane = 0; lane < layout_.lanes; ++lane)
        note(entry.data[k], next[entry.data[k]]++, tables_.root_readers + k, lane);
    for (int32_t c = 0; c < program_.num_classes; ++c) {
      std::sort(wanted_[c].begin(), wanted_[c].end());
      std::sort(rows_[c].begin(), rows_[c].end());
      CHECK(wanted_[c] == rows_[c]);
    }
  }

  using Pairs = std::vector<std::pair<int32_t, int32_t>>;  // value row, read row

  const StepRun& run_;
  const Schedule& schedule_;
  const Program& program_;
  const Layout& layout_;
  TableBuffers tables_;
  std::vector<Values32> tapes_;
  std::vector<Pairs> rows_, wanted_;
};

struct Counts {
  int64_t ok = 0, refused = 0, calls = 0, waves = 0;
};

// Every result as the run left it on its tapes.
Values32 reported(StepRun& run) {
  TableBuffers tables(run.schedule);
  CHECK(fill(run.schedule, tables.arrays()).ok());
  const Function& entry = run.schedule.program.entry_function();
  const Layout& layout = run.schedule.layout;
  Values32 out;
  for (size_t k = 0; k < entry.results.size(); ++k) {
    const Values32& tape = run.tapes[entry.results[k]];
    for (int32_t lane = 0; lane < layout.lanes; ++lane)
      out.push_back(tape[tables.ints(tables.results + k)[lane]]);
    for (size_t i = 0; run.schedule.collect && i < layout.collected.size(); ++i)
      out.push_back(tape[tables.ints(tables.collected_results + k)[i]]);
  }
  return out;
}

// Handing rows out again changes no result.
void check_reuse(Job& job, StepRun& run) {
  StepRun again(job);
  CHECK(again.run({{}, {}, true}).ok());
  CHECK(reported(again) == reported(run));
}

void check_job(Job& job, Counts& counts) {
  StepRun run(job);
  const Status status = run.run();
  Program program;
  CHECK(decode(job.words, program).ok());
  Evaluator plain(program, job);
  std::vector<Values32> want;
  if (!plain.run(want)) {
    CHECK(status.code == Code::kIndex || status.code == Code::kRecursionLimit);
    ++counts.refused;
    return;
  }
  CHECK(status.ok());
  if (!status.ok()) return;
  CHECK(run.calls == plain.calls && run.schedule.frames->size() == plain.calls);
  Replay replay(run);
  replay.check();
  for (size_t lane = 0; lane < want.size(); ++lane)
    for (size_t k = 0; k < want[lane].size(); ++k)
      CHECK(replay.result(k, static_cast<int64_t>(lane)) == want[lane][k]);
  if (job.collect) {
    std::vector<Evaluator::Made> got = replay.collected();
    std::sort(got.begin(), got.end());
    std::sort(plain.made.begin(), plain.made.end());
    CHECK(got == plain.made);
  }
  check_reuse(job, run);
  ++counts.ok;
  counts.calls += run.calls;
  counts.waves += static_cast<int64_t>(run.waves.size());
}

Counts random_programs(uint32_t number, uint32_t first) {
  Counts counts;
  const int before = failures;
  for (uint32_t seed = first; seed < first + number; ++seed) {
    Job job = RandomProgram(seed, true).job();
    job.call_limit = 2000;
    check_job(job, counts);
    if (failures > before) {
      std::printf("seed %u\n", seed);
      break;
    }
  }
  CHECK(counts.ok > 0);
  return counts;
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
  CHECK(job.start(stepper).ok());
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
  CHECK(job.start(stepper).ok());
  CHECK(has(stepper->step({{tape.data(), DType::kI32, {&rows, 1}}}), "too few rows"));
  CHECK(job.start(stepper).ok());
  rows = 16;
  CHECK(has(stepper->step({{tape.data(), DType::kF32, {&rows, 1}}}), "not a vector of its type"));
  CHECK(job.start(stepper).ok());
  CHECK(stepper->step({{tape.data(), DType::kI32, {&rows, 1}}}).ok());
  std::vector<int32_t> row(3);
  CHECK(has(stepper->write_wave({row.data(), row.size()}), "more columns"));
  CHECK(has(stepper->write_operands({}), "as many operands as its cell"));
}

}  // namespace
}  // namespace jaxrec

int main(int argc, char** argv) {
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
  const Counts counts =
      random_programs(argc > 1 ? std::atoi(argv[1]) : 400, argc > 2 ? std::atoi(argv[2]) : 0);
  std::printf("%ld random programs run (%ld calls, %ld waves), %ld refused\n",
              static_cast<long>(counts.ok), static_cast<long>(counts.calls),
              static_cast<long>(counts.waves), static_cast<long>(counts.refused));
  return report("stepper");
}
