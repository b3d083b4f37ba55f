// Plain recursion, and a driver that does what a compiled program does between steps.
#include "tests/step_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/check.h"

namespace jaxrec {
namespace {

int32_t mixed(uint32_t seed, const Values32& items) {
  uint32_t h = 0x9e3779b9u + seed;
  for (int32_t item : items) h = ((h ^ static_cast<uint32_t>(item)) * 0x85ebca6bu) ^ (h >> 13);
  h ^= h >> 16;
  return static_cast<int32_t>(h & 0x7fffffff);
}

template <class T>
std::vector<T> pick(const std::vector<T>& from, const int32_t* places, size_t n) {
  std::vector<T> out;
  for (size_t i = 0; i < n; ++i) out.push_back(from[places[i]]);
  return out;
}

}  // namespace

int32_t cell_output(int32_t cell, size_t output, Values32 inputs, const Values32& exports,
                    int32_t lane) {
  inputs.insert(inputs.end(), exports.begin(), exports.end());
  inputs.push_back(lane);
  return mixed(static_cast<uint32_t>(cell * 16 + output), inputs);
}

int32_t root_value(size_t k, int32_t lane) { return mixed(77, {int32_t(k), lane}); }

bool Evaluator::Made::operator<(const Made& b) const {
  return std::tie(lane, control, results) < std::tie(b.lane, b.control, b.results);
}

bool Evaluator::run(std::vector<Values32>& out) {
  const Function& entry = program_.entry_function();
  for (size_t lane = 0; lane < job_.roots.size() && ok_; ++lane) {
    const auto at = static_cast<int32_t>(lane);
    std::vector<Word> control = {job_.roots[lane]};
    if (!job_.more_roots.empty()) control.push_back(job_.more_roots[lane]);
    Values32 data;
    for (size_t k = 0; k < entry.data.size(); ++k) data.push_back(root_value(k, at));
    out.push_back(call(program_.entry, control, data, at));
  }
  return ok_;
}

Values32 Evaluator::call(int32_t number, const std::vector<Word>& control, const Values32& data,
                         int32_t lane) {
  const Function& function = program_.functions[number];
  const Key key{number, lane, control};
  if (function.memo && shared_.count(key) != 0) return shared_[key];
  Values32 results(function.results.size());
  if (ok_ && (job_.call_limit < 0 || calls < job_.call_limit)) {
    ++calls;
    results = run_body(function, control, data, lane);
  } else {
    ok_ = false;
  }
  if (function.memo) shared_[key] = results;
  if (number == program_.entry) made.push_back({lane, control, results});
  return results;
}

Values32 Evaluator::run_body(const Function& function, const std::vector<Word>& control,
                             const Values32& data, int32_t lane) {
  std::vector<Word> reg(function.num_registers);
  Values32 slot(function.num_slots);
  std::copy(control.begin(), control.end(), reg.begin());
  std::copy(data.begin(), data.end(), slot.begin());
  const int32_t* pool = program_.pool.data();
  for (int32_t at = function.code_begin; ok_; ++at) {
    const Instr& in = program_.code[at];
    switch (in.kind) {
      case Kind::kConst: reg[in.dst] = in.imm; break;
      case Kind::kUnary: reg[in.dst] = in.unary(reg[in.a]); break;
      case Kind::kBinary: reg[in.dst] = in.binary(reg[in.a], reg[in.b]); break;
      case Kind::kSelect: reg[in.dst] = reg[reg[in.a] != 0 ? in.c : in.b]; break;
      case Kind::kLoad: reg[in.dst] = load(in.a, reg[pool[in.b]]); break;
      case Kind::kSwitch: {
        const Word last = in.b - 1;
        at = pool[in.c + std::clamp<Word>(reg[in.a], 0, last)] - 1;
        break;
      }
      case Kind::kJump: at = in.a - 1; break;
      case Kind::kCall: run_call(in, reg, slot, lane); break;
      case Kind::kFire: fire(in, reg, slot, lane); break;
      case Kind::kAlias: slot[in.dst] = slot[in.a]; break;
      case Kind::kImport: reg[in.dst] = slot[in.a]; break;
      case Kind::kReturn: return pick(slot, pool + in.c, function.results.size());
    }
  }
  return Values32(function.results.size());
}

Word Evaluator::load(int32_t outer, Word index) {
  const Values32& array = job_.outers[outer];
  ok_ = ok_ && index >= 0 && index < static_cast<Word>(array.size());
  return ok_ ? array[index] : 0;
}

void Evaluator::run_call(const Instr& in, const std::vector<Word>& reg, Values32& slot,
                         int32_t lane) {
  const Function& callee = program_.functions[in.a];
  const int32_t* operands = program_.pool.data() + in.c;
  const std::vector<Word> control = pick(reg, operands, callee.control.size());
  operands += callee.control.size();
  const Values32 data = pick(slot, operands, callee.data.size());
  operands += callee.data.size();
  for (int32_t result : call(in.a, control, data, lane)) slot[*operands++] = result;
}

void Evaluator::fire(const Instr& in, const std::vector<Word>& reg, Values32& slot, int32_t lane) {
  const Cell& cell = program_.cells[in.a];
  const int32_t* operands = program_.pool.data() + in.c;
  Values32 exports;
  for (size_t i = 0; i < cell.exports.size(); ++i)
    exports.push_back(static_cast<int32_t>(reg[*operands++]));
  const Values32 inputs = pick(slot, operands, cell.inputs.size());
  operands += cell.inputs.size();
  for (size_t k = 0; k < cell.outputs.size(); ++k)
    slot[*operands++] = cell_output(in.a, k, inputs, exports, lane);
}

Status StepRun::run(const Room& room) {
  if (Status status = job_.start(stepper, room); !status.ok()) return status;
  begin();
  for (;;) {
    if (Status status = stepper->step(imported()); !status.ok()) return status;
    if (stepper->waves().empty()) break;
    for (size_t w = 0; w < stepper->waves().size(); ++w)
      if (Status status = wave(w); !status.ok()) return status;
  }
  calls = stepper->num_calls();
  if (Status status = results(); !status.ok()) return status;
  return stepper->finish(schedule);
}

std::vector<Values32> StepRun::root_tapes(const Program& program, int64_t pad, int64_t lanes) {
  std::vector<Values32> out(program.num_classes, Values32(pad, -1));
  const std::vector<int32_t>& data = program.entry_function().data;
  for (size_t k = 0; k < data.size(); ++k)
    for (int64_t lane = 0; lane < lanes; ++lane)
      out[data[k]].push_back(root_value(k, static_cast<int32_t>(lane)));
  return out;
}

void StepRun::begin() {
  const auto lanes = static_cast<int64_t>(job_.roots.size());
  tapes = root_tapes(stepper->program(), job_.widths.back(), lanes);
}

// The tapes as they are; as they were, where the step says that it reads nothing new.
std::vector<Array> StepRun::imported() {
  if (seen_.empty() || stepper->reads_next()) seen_ = tapes;
  std::vector<Array> out;
  sizes_.assign(stepper->program().imports.size(), 0);
  for (size_t i = 0; i < sizes_.size(); ++i) {
    const int32_t c = stepper->program().imports[i].value_class;
    Values32& tape = seen_[c];
    tape.resize(tapes[c].size(), -1);
    sizes_[i] = static_cast<int64_t>(tape.size());
    out.push_back({tape.data(), DType::kI32, {&sizes_[i], 1}});
  }
  return out;
}

Status StepRun::wave(size_t at) {
  const auto widths = static_cast<int32_t>(job_.widths.size());
  const int32_t kind = stepper->waves()[at].kind, number = kind / widths;
  const Cell& cell = stepper->program().cells[number];
  const int64_t width = job_.widths[kind % widths];
  CHECK(std::isfinite(job_.costs[kind % job_.costs.size()]));
  Ran ran{Values32(3 + cell.outputs.size()), {}, {}, Values32(width)};
  ran.reads.assign(cell.inputs.size(), Values32(width));
  ran.exports.assign(cell.exports.size(), Values32(width));
  std::vector<Array> buffers;
  for (auto* group : {&ran.reads, &ran.exports})
    for (Values32& buffer : *group) buffers.push_back({buffer.data(), DType::kI32, {&width, 1}});
  buffers.push_back({ran.lanes.data(), DType::kI32, {&width, 1}});
  if (Status status = stepper->write_wave(at, {ran.row.data(), ran.row.size()}); !status.ok())
    return status;
  if (Status status = stepper->write_operands(at, buffers); !status.ok()) return status;
  compute(number, cell, ran, width);
  waves.push_back(std::move(ran));
  return {};
}

Status StepRun::results() {
  const auto lanes = static_cast<int64_t>(job_.roots.size());
  result_rows.assign(stepper->program().entry_function().results.size(), Values32(lanes));
  std::vector<Array> buffers;
  for (Values32& rows : result_rows) buffers.push_back({rows.data(), DType::kI32, {&lanes, 1}});
  return stepper->write_results(buffers);
}

// All rows of the width, as a compiled cell does: those past the count are overwritten later.
void StepRun::compute(int32_t number, const Cell& cell, const Ran& ran, int64_t width) {
  std::vector<Values32> outputs(cell.outputs.size());
  for (int64_t i = 0; i < width; ++i) {
    Values32 inputs, exports;
    for (size_t k = 0; k < ran.reads.size(); ++k)
      inputs.push_back(tapes[cell.inputs[k]][ran.reads[k][i]]);
    for (const Values32& item : ran.exports) exports.push_back(item[i]);
    for (size_t k = 0; k < outputs.size(); ++k)
      outputs[k].push_back(cell_output(number, k, inputs, exports, ran.lanes[i]));
  }
  for (size_t k = 0; k < outputs.size(); ++k) {
    Values32& tape = tapes[cell.outputs[k]];
    const size_t first = ran.row[3 + k];
    tape.resize(std::max(tape.size(), first + width), -1);
    std::copy(outputs[k].begin(), outputs[k].end(), tape.begin() + first);
  }
}

}  // namespace jaxrec
