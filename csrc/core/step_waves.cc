// The waves of a stepper: which firings run next, and what they read and write.
#include <algorithm>
#include <cstring>

#include "core/names.h"
#include "core/stepper.h"

namespace jaxrec {
namespace {

// Repeats the first element behind the last; of none, zeros.
void pad_operand(const Array& operand, int64_t count) {
  char* rows = operand.as<char>();
  const size_t all = bytes_of(operand), begin = bytes_of(operand, count);
  if (begin == all) return;  // the memory of an empty array may be null
  if (count == 0) {
    std::memset(rows, 0, all);
    return;
  }
  size_t done = bytes_of(operand, 1);
  std::memcpy(rows + begin, rows, done);
  for (size_t more; begin + done < all; done += more) {
    more = std::min(done, all - begin - done);
    std::memcpy(rows + begin + done, rows + begin, more);
  }
}

}  // namespace

Status Stepper::issue(int32_t number) {
  const Cell& cell = program_.cells[number];
  const std::deque<int32_t>& ready = ready_->of(number);
  const auto waiting = static_cast<int64_t>(ready.size());
  const int32_t width = waiting > 0 ? covers_[covers_.size() == 1 ? 0 : number].widest(waiting) : 0;
  const auto count = static_cast<int32_t>(std::min(waiting, widths_[width]));
  if (Status status = check_room(number, count); !status.ok()) return status;
  const auto first = static_cast<int32_t>(agenda_.order.size());
  const size_t outputs = out_starts_.size();
  waves_.push_back({number * static_cast<int32_t>(widths_.size()) + width, count,
                    next_cell_[number], first, outputs});
  agenda_.waves.push_back({number, width, first, count});
  for (int32_t i = 0; i < count; ++i) find_inputs(ready[i]);
  taken_.clear();
  for (int32_t c : cell.outputs)
    out_starts_.push_back(take_rows(c, count, static_cast<int32_t>(widths_[width])));
  next_cell_[number] += count;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t firing = ready_->take(number, frames_[firings_[ready.front()].frame].call->depth);
    agenda_.order.push_back(firing);
    for (size_t k = 0; k < cell.outputs.size(); ++k) {
      const int32_t value = firings_[firing].output + static_cast<int32_t>(k);
      values_.make(value, out_starts_[outputs + k] + i, [this](int32_t who) { release(who); });
      if (keeper_ != nullptr) keeper_->made(value, taken_[k]);
    }
  }
  for (int32_t block : taken_) keeper_->settle(block);
  if (keeper_ != nullptr)
    starts_.insert(starts_.end(), out_starts_.begin() + static_cast<std::ptrdiff_t>(outputs),
                   out_starts_.end());
  return {};
}

// What one of its waves makes ready, those after it may take.
Status Stepper::issue_sweep() {
  for (size_t cell = 0; cell < program_.cells.size(); ++cell)
    if (Status status = issue(static_cast<int32_t>(cell)); !status.ok()) return status;
  return {};
}

// Which values a firing reads that runs now. What it reads for the last time may be overwritten by
// what it makes of it.
void Stepper::find_inputs(int32_t firing) {
  int32_t* inputs = inputs_.data() + firings_[firing].input;
  const size_t count = program_.cells[firings_[firing].cell].inputs.size();
  for (size_t k = 0; k < count; ++k) {
    inputs[k] = values_.find(inputs[k]);
    if (keeper_ != nullptr) keeper_->drop(inputs[k]);
  }
}

// The first of `count` rows for values; where they are handed out again, of `rows`.
int32_t Stepper::take_rows(int32_t tape_class, int32_t count, int32_t rows) {
  if (keeper_ != nullptr) {
    taken_.push_back(keeper_->take(tape_class, rows));
    return keeper_->start(taken_.back());
  }
  next_value_[tape_class] += count;
  return next_value_[tape_class] - count;
}

int32_t Stepper::end_of_rows(int32_t tape_class) const {
  return keeper_ != nullptr ? keeper_->end(tape_class) : next_value_[tape_class];
}

std::vector<int64_t> Stepper::rows_made() const {
  std::vector<int64_t> rows;
  for (const Import& import : program_.imports) rows.push_back(end_of_rows(import.value_class));
  return rows;
}

Status Stepper::check_room(int32_t number, int32_t count) const {
  if (value_room_.empty()) return {};
  const int64_t pad = widths_.back();
  bool fits = next_cell_[number] + count + pad <= cell_room_[number];
  const std::vector<int32_t>& outputs = program_.cells[number].outputs;
  for (int32_t c : outputs) {
    const int64_t made = count * std::count(outputs.begin(), outputs.end(), c);
    fits = fits && next_value_[c] + made + pad <= value_room_[c];
  }
  if (fits) return {};
  const std::string n = std::to_string(num_calls());
  return capacity_error(Names(program_, names_).function(program_.entry) + " made " + n +
                            " calls so far in one invocation, for whose values max_calls=" +
                            std::to_string(max_calls_) +
                            " leaves no room. Pass rec_fn(max_calls=...) with a greater number, or "
                            "call eagerly without one: capacity then grows by itself.",
                        num_calls());
}

Status Stepper::write_wave(size_t number, Span<int32_t> row) const {
  const bool is_there = number < waves_.size();
  const size_t outputs = is_there ? cell_of(waves_[number]).outputs.size() : 0;
  if (row.size() < kWaveHead + outputs) return program_error("a wave has more columns");
  std::fill(row.begin(), row.end(), 0);
  row[0] = -1;
  if (!is_there) return {};
  const StepWave& wave = waves_[number];
  row[0] = wave.kind;
  row[1] = wave.count;
  row[2] = wave.cell_row;
  std::copy_n(out_starts_.begin() + static_cast<std::ptrdiff_t>(wave.outputs), outputs,
              row.begin() + kWaveHead);
  return {};
}

const Cell& Stepper::cell_of(const StepWave& wave) const {
  return program_.cells[wave.kind / static_cast<int32_t>(widths_.size())];
}

Status Stepper::write_operands(size_t number, const std::vector<Array>& buffers) const {
  if (number >= waves_.size())
    return program_error("there is no wave whose operands could be written");
  const StepWave& wave = waves_[number];
  const Cell& cell = cell_of(wave);
  const size_t inputs = cell.inputs.size(), exports = cell.exports.size();
  if (buffers.size() != inputs + exports + 1)
    return program_error("a wave has as many operands as its cell, and lanes");
  for (size_t k = 0; k < buffers.size(); ++k) {
    const DType dtype =
        k < inputs || k == inputs + exports ? DType::kI32 : cell.exports[k - inputs];
    if (buffers[k].dtype != dtype || buffers[k].rank() != 1 || buffers[k].size() < wave.count)
      return program_error("operand " + std::to_string(k) + " of a wave has the wrong type");
  }
  for (int32_t i = 0; i < wave.count; ++i) {
    const StepFiring& firing = firings_[agenda_.order[wave.first + i]];
    for (size_t k = 0; k < inputs; ++k)
      buffers[k].as<int32_t>()[i] = values_.row(inputs_[firing.input + k]);
    for (size_t k = 0; k < exports; ++k)
      store_element(buffers[inputs + k].data, cell.exports[k], i, exports_[firing.exported + k]);
    buffers[inputs + exports].as<int32_t>()[i] = frames_[firing.frame].call->lane;
  }
  for (const Array& buffer : buffers) pad_operand(buffer, wave.count);
  return {};
}

Status Stepper::write_sweep(Span<int32_t> out) const {
  const int64_t width = widths_.back();
  size_t at = 0;
  const auto take = [&](size_t elements, DType dtype) {
    const size_t begin = at, bytes = elements * byte_width(dtype);
    at += (bytes + 7) / 8 * 2;
    return begin;
  };
  const size_t columns = kWaveHead + program_.max_outputs() + program_.max_inputs();
  std::vector<Array> operands;
  for (size_t i = 0; i < program_.cells.size(); ++i) {
    const Cell& cell = program_.cells[i];
    std::vector<DType> types(cell.inputs.size(), DType::kI32);
    types.insert(types.end(), cell.exports.begin(), cell.exports.end());
    types.push_back(DType::kI32);
    const size_t row = take(columns, DType::kI32);
    operands.clear();
    for (DType dtype : types)
      operands.push_back(
          {out.begin() + take(static_cast<size_t>(width), dtype), dtype, {&width, 1}});
    if (at > out.size()) break;
    if (Status status = write_wave(i, {out.begin() + row, columns}); !status.ok() || waves_.empty())
      return status;
    if (Status status = write_operands(i, operands); !status.ok()) return status;
  }
  return at == out.size() ? Status{} : program_error("a sweep has another size");
}

std::string Stepper::call_path(int64_t wave, int64_t row) const {
  if (wave < 0 || wave >= static_cast<int64_t>(agenda_.waves.size()) || row < 0 ||
      row >= agenda_.waves[wave].count)
    return "";
  const int32_t firing = agenda_.order[agenda_.waves[wave].first + row];
  return format_path(Names(program_, names_), path_to(firings_[firing].frame));
}

}  // namespace jaxrec
