// The waves of a stepper: which firings run next, and what they read and write.
#include <algorithm>
#include <cstring>

#include "core/names.h"
#include "core/stepper.h"

namespace jaxrec {

// While frames wait: what control may read, the shallowest first, so that calls at one depth meet
// in one wave. When all calls are made: cells that nothing more can join, then the deepest, whose
// results the most others wait for.
int32_t Stepper::choose_cell() const {
  int32_t best = -1;
  bool best_urgent = false;
  double best_depth = 0;
  for (size_t i = 0; i < ready_.size(); ++i) {
    if (ready_[i].firings.empty()) continue;
    const auto cell = static_cast<int32_t>(i);
    if (blocked_ == 0 && static_cast<int64_t>(ready_[i].firings.size()) == unfired_[i]) return cell;
    const bool urgent = blocked_ > 0 && feeds_control_[i];
    const double depth = urgent ? -ready_[i].average_depth() : ready_[i].average_depth();
    if (best < 0 || urgent > best_urgent || (urgent == best_urgent && depth > best_depth))
      best = cell, best_urgent = urgent, best_depth = depth;
  }
  return best;
}

Status Stepper::issue(int32_t number) {
  const Cell& cell = program_.cells[number];
  Ready& ready = ready_[number];
  const auto waiting = static_cast<int64_t>(ready.firings.size());
  covers_[covers_.size() == 1 ? 0 : number].cut(waiting, cut_);
  const int32_t width = cut_.front();
  const auto count = static_cast<int32_t>(std::min(waiting, widths_[width]));
  if (Status status = check_room(number, count); !status.ok()) return status;
  wave_ = {number * static_cast<int32_t>(widths_.size()) + width, count, next_cell_[number]};
  const auto first = static_cast<int32_t>(agenda_.order.size());
  agenda_.waves.push_back({width, first, count});
  out_starts_.clear();
  for (int32_t c : cell.outputs) {
    out_starts_.push_back(next_value_[c]);
    next_value_[c] += count;
  }
  next_cell_[number] += count;
  unfired_[number] -= count;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t firing = ready.firings.front();
    ready.firings.pop_front();
    ready.depths -= frames_[firings_[firing].frame].call->depth;
    agenda_.order.push_back(firing);
    // Later firings that read the same values then find them at once.
    int32_t* inputs = inputs_.data() + firings_[firing].input;
    for (size_t k = 0; k < cell.inputs.size(); ++k) inputs[k] = values_.find(inputs[k]);
    for (size_t k = 0; k < cell.outputs.size(); ++k)
      values_.make(firings_[firing].output + static_cast<int32_t>(k), out_starts_[k] + i,
                   [this](int32_t who) { release(who); });
  }
  return {};
}

Status Stepper::check_room(int32_t number, int32_t count) const {
  if (value_room_.empty()) return {};
  const int64_t pad = widths_.back();
  bool fits = next_cell_[number] + count + pad <= cell_room_[number];
  std::vector<int32_t> made(program_.num_classes, 0);
  for (int32_t c : program_.cells[number].outputs) made[c] += count;
  for (int32_t c = 0; c < program_.num_classes; ++c)
    fits = fits && (made[c] == 0 || next_value_[c] + made[c] + pad <= value_room_[c]);
  if (fits) return {};
  const std::string n = std::to_string(num_calls());
  return capacity_error(Names(program_, names_).function(program_.entry) + " made " + n +
                            " calls so far in one invocation, for whose values max_calls=" +
                            std::to_string(max_calls_) +
                            " leaves no room. Pass rec_fn(max_calls=...) with a greater number, or "
                            "call eagerly, where capacity grows by itself.",
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
