// The replay of a finished schedule on tapes of its own, and what a whole check is.
#include "tests/step_check.h"

#include <algorithm>

#include "core/fill.h"
#include "tests/check.h"

namespace jaxrec {
namespace {

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

}  // namespace

Replay::Replay(const StepRun& run)
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

void Replay::check() {
  CHECK(run_.waves.size() == layout_.waves.size());
  for (size_t w = 0; w < layout_.waves.size(); ++w) wave(w);
  for (int32_t c = 0; c < program_.num_classes; ++c) {
    const auto begin = tapes_[c].begin() + layout_.pad, end = begin + layout_.value_rows[c];
    CHECK(std::equal(begin, end, run_.tapes[c].begin() + layout_.pad));
  }
  results();
  readers();
}

int32_t Replay::result(size_t k, int64_t lane) {
  return value(program_.entry_function().results[k], tables_.ints(tables_.results + k)[lane]);
}

std::vector<Evaluator::Made> Replay::collected() {
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

const int32_t* Replay::row(size_t wave) {
  return tables_.ints(1) + wave * static_cast<size_t>(TableBuffers::columns(layout_));
}

void Replay::wave(size_t w) {
  const int32_t* at = row(w);
  const StepRun::Ran& ran = run_.waves[w];
  CHECK(std::equal(ran.row.begin(), ran.row.end(), at));
  const int32_t number = at[0] / static_cast<int32_t>(schedule_.num_widths);
  const Cell& cell = program_.cells[number];
  for (int32_t i = 0; i < at[1]; ++i) firing(number, cell, at, ran, i);
}

void Replay::firing(int32_t number, const Cell& cell, const int32_t* at, const StepRun::Ran& ran,
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
void Replay::note(int32_t c, int32_t value_row, size_t table, int32_t place) {
  const int32_t* starts = tables_.ints(table);
  for (int32_t r = starts[place]; r < starts[place + 1]; ++r)
    rows_[c].push_back({value_row, tables_.ints(tables_.reader_rows + c)[r]});
}

void Replay::results() {
  const Function& entry = program_.entry_function();
  const int32_t* starts = tables_.ints(0) + 3;
  for (size_t k = 0; k < entry.results.size(); ++k)
    for (int32_t lane = 0; lane < layout_.lanes; ++lane) {
      const int32_t row = tables_.ints(tables_.results + k)[lane];
      CHECK(run_.result_rows[k][lane] == row);
      wanted_[entry.results[k]].push_back({row, starts[k] + lane});
    }
  if (!schedule_.collect) return;
  starts += entry.results.size();
  for (size_t k = 0; k < entry.results.size(); ++k)
    for (size_t i = 0; i < layout_.collected.size(); ++i)
      wanted_[entry.results[k]].push_back(
          {tables_.ints(tables_.collected_results + k)[i], starts[k] + static_cast<int32_t>(i)});
}

// Reads and readers say the same, one from each side.
void Replay::readers() {
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

}  // namespace jaxrec
