// The waves of a stepper: which firings run next, and what they read and write.
#include <algorithm>
#include <cstring>

#include "core/names.h"
#include "core/stepper.h"

namespace jaxrec {

Status Stepper::issue(int32_t number) {
  const Cell& cell = program_.cells[number];
  const std::deque<int32_t>& ready = ready_->of(number);
  const auto waiting = static_cast<int64_t>(ready.size());
  const int32_t width = covers_[covers_.size() == 1 ? 0 : number].widest(waiting);
  const auto count = static_cast<int32_t>(std::min(waiting, widths_[width]));
  if (Status status = check_room(number, count); !status.ok()) return status;
  wave_ = {number * static_cast<int32_t>(widths_.size()) + width, count, next_cell_[number]};
  const auto first = static_cast<int32_t>(agenda_.order.size());
  agenda_.waves.push_back({width, first, count});
  for (int32_t i = 0; i < count; ++i) find_inputs(ready[i]);
  out_starts_.clear();
  taken_.clear();
  for (int32_t c : cell.outputs)
    out_starts_.push_back(take_rows(c, count, static_cast<int32_t>(widths_[width])));
  next_cell_[number] += count;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t firing = ready_->take(number, frames_[firings_[ready.front()].frame].call->depth);
    agenda_.order.push_back(firing);
    for (size_t k = 0; k < cell.outputs.size(); ++k) {
      const int32_t value = firings_[firing].output + static_cast<int32_t>(k);
      values_.make(value, out_starts_[k] + i, [this](int32_t who) { release(who); });
      if (keeper_ != nullptr) keeper_->made(value, taken_[k]);
    }
  }
  for (int32_t block : taken_) keeper_->settle(block);
  if (keeper_ != nullptr) starts_.insert(starts_.end(), out_starts_.begin(), out_starts_.end());
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

Status Stepper::write_wave(Span<int32_t> row) const {
  const size_t outputs = wave_.kind >= 0 ? out_starts_.size() : 0;
  if (row.size() < 3 + outputs) return program_error("a wave has more columns");
  std::fill(row.begin(), row.end(), 0);
  row[0] = wave_.kind;
  row[1] = wave_.count;
  row[2] = wave_.cell_row;
  std::copy_n(out_starts_.begin(), outputs, row.begin() + 3);
  return {};
}

Status Stepper::write_operands(const std::vector<Array>& buffers) const {
  if (wave_.kind < 0) return program_error("there is no wave whose operands could be written");
  const Cell& cell = program_.cells[wave_.kind / static_cast<int32_t>(widths_.size())];
  const size_t inputs = cell.inputs.size(), exports = cell.exports.size();
  if (buffers.size() != inputs + exports + 1)
    return program_error("a wave has as many operands as its cell, and lanes");
  for (size_t k = 0; k < buffers.size(); ++k) {
    const DType dtype =
        k < inputs || k == inputs + exports ? DType::kI32 : cell.exports[k - inputs];
    if (buffers[k].dtype != dtype || buffers[k].rank() != 1 || buffers[k].size() < wave_.count)
      return program_error("operand " + std::to_string(k) + " of a wave has the wrong type");
  }
  const int32_t* order = agenda_.order.data() + agenda_.waves.back().first;
  for (int32_t i = 0; i < wave_.count; ++i) {
    const StepFiring& firing = firings_[order[i]];
    for (size_t k = 0; k < inputs; ++k)
      buffers[k].as<int32_t>()[i] = values_.row(inputs_[firing.input + k]);
    for (size_t k = 0; k < exports; ++k)
      store_element(buffers[inputs + k].data, cell.exports[k], i, exports_[firing.exported + k]);
    buffers[inputs + exports].as<int32_t>()[i] = frames_[firing.frame].call->lane;
  }
  for (const Array& buffer : buffers) {
    const size_t bytes = byte_width(buffer.dtype);
    char* rows = buffer.as<char>();
    for (int64_t i = wave_.count; i < buffer.size(); ++i)
      std::memcpy(rows + static_cast<size_t>(i) * bytes, rows, bytes);
  }
  return {};
}

std::string Stepper::call_path(int64_t wave, int64_t row) const {
  if (wave < 0 || wave >= static_cast<int64_t>(agenda_.waves.size()) || row < 0 ||
      row >= agenda_.waves[wave].count)
    return "";
  const int32_t firing = agenda_.order[agenda_.waves[wave].first + row];
  return format_path(Names(program_, names_), path_to(firings_[firing].frame));
}

}  // namespace jaxrec
