#include "core/ready_cells.h"

#include <algorithm>

namespace jaxrec {

ReadyCells::ReadyCells(const Program& program) : cells_(program.cells.size()) {
  find_control_cells(program);
}

// A cell feeds control if it writes an imported class, or one that a cell which does so reads.
void ReadyCells::find_control_cells(const Program& program) {
  std::vector<char> wanted(program.num_classes, 0);
  for (const Import& import : program.imports) wanted[import.value_class] = 1;
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < cells_.size(); ++i) {
      const std::vector<int32_t>& outputs = program.cells[i].outputs;
      if (cells_[i].feeds_control ||
          std::none_of(outputs.begin(), outputs.end(), [&](int32_t c) { return wanted[c]; }))
        continue;
      cells_[i].feeds_control = changed = true;
      for (int32_t c : program.cells[i].inputs) wanted[c] = 1;
    }
  }
}

int32_t ReadyCells::take(int32_t cell, int32_t depth) {
  Ready& ready = cells_[cell];
  const int32_t firing = ready.firings.front();
  ready.firings.pop_front();
  ready.depths -= depth;
  --ready.unfired;
  return firing;
}

int32_t ReadyCells::choose(bool frames_wait) const {
  int32_t best = -1;
  bool best_urgent = false;
  double best_depth = 0;
  for (size_t i = 0; i < cells_.size(); ++i) {
    const Ready& ready = cells_[i];
    if (ready.firings.empty()) continue;
    const auto cell = static_cast<int32_t>(i);
    if (!frames_wait && static_cast<int64_t>(ready.firings.size()) == ready.unfired) return cell;
    const bool urgent = frames_wait && ready.feeds_control;
    const double depth = urgent ? -ready.average_depth() : ready.average_depth();
    if (best < 0 || urgent > best_urgent || (urgent == best_urgent && depth > best_depth))
      best = cell, best_urgent = urgent, best_depth = depth;
  }
  return best;
}

bool ReadyCells::any_left() const {
  return std::any_of(cells_.begin(), cells_.end(), [](const Ready& r) { return r.unfired > 0; });
}

}  // namespace jaxrec
