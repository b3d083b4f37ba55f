#include "core/layout.h"

#include <limits>
#include <utility>

#include "core/agenda.h"

namespace jaxrec {
namespace {

class LayoutBuilder {
 public:
  LayoutBuilder(const Program& program, const FrameTable& frames, const Values& values,
                const LayoutOptions& options, Layout& out)
      : program_(program), frames_(frames), values_(values), options_(options), out_(out) {}

  Status run() {
    out_.pad = static_cast<int32_t>(options_.of_waves.widths[options_.of_waves.widths.size() - 1]);
    out_.lanes = static_cast<int32_t>(frames_.roots.size());
    out_.max_in = static_cast<int32_t>(program_.max_inputs());
    out_.max_out = static_cast<int32_t>(program_.max_outputs());
    if (options_.collect) collect();
    if (Status status = count_rows(); !status.ok() || !options_.waves) return status;
    next_value_.assign(program_.num_classes, out_.pad);
    next_read_ = next_value_;
    next_cell_.assign(program_.cells.size(), out_.pad);
    for (int32_t c : program_.entry_function().data)
      out_.root_starts.push_back(block(next_value_, c, out_.lanes));
    waves();
    for (int32_t c : program_.entry_function().results)
      out_.result_starts.push_back(block(next_read_, c, out_.lanes));
    if (options_.collect)
      for (int32_t c : program_.entry_function().results)
        out_.collect_starts.push_back(
            block(next_read_, c, static_cast<int32_t>(out_.collected.size())));
    return {};
  }

 private:
  void collect() {
    for (int32_t i = 0; i < frames_.size(); ++i)
      if (frames_.outline(i).function == program_.entry) out_.collected.push_back(i);
  }

  // Counted in 64 bits before any row is handed out, so that row numbers never overflow.
  Status count_rows() {
    std::vector<int64_t> cells(program_.cells.size()), values(program_.num_classes),
        reads(program_.num_classes);
    for (const Firing& firing : values_.firings) ++cells[firing.cell];
    for (size_t i = 0; i < cells.size(); ++i) {
      for (int32_t c : program_.cells[i].outputs) values[c] += cells[i];
      for (int32_t c : program_.cells[i].inputs) reads[c] += cells[i];
    }
    const int64_t reported = out_.lanes + static_cast<int64_t>(out_.collected.size());
    for (int32_t c : program_.entry_function().data) values[c] += out_.lanes;
    for (int32_t c : program_.entry_function().results) reads[c] += reported;
    const int64_t most =
        std::numeric_limits<int32_t>::max() - 2 * static_cast<int64_t>(out_.pad) - 1;
    for (const auto* counts : {&cells, &values, &reads})
      for (int64_t n : *counts)
        if (n > most) return internal_error("more than 2147483647 rows in one invocation");
    out_.cell_rows.assign(cells.begin(), cells.end());
    out_.value_rows.assign(values.begin(), values.end());
    out_.read_rows.assign(reads.begin(), reads.end());
    return {};
  }

  static int32_t block(std::vector<int32_t>& next, int32_t c, int32_t rows) {
    const int32_t start = next[c];
    next[c] += rows;
    return start;
  }

  void waves() {
    Agenda agenda = options_.agenda != nullptr ? *options_.agenda
                                               : make_agenda(program_, values_, options_.of_waves);
    out_.order = std::move(agenda.order);
    out_.output_rows.resize(values_.producers.size());
    for (const AgendaWave& wave : agenda.waves) add_wave(wave);
  }

  void add_wave(const AgendaWave& wave) {
    const auto [number, width, first, count] = wave;
    const Cell& cell = program_.cells[number];
    out_.waves.push_back({number, width, count, block(next_cell_, number, count), first});
    const size_t out_at = out_.out_starts.size();
    for (int32_t c : cell.outputs) out_.out_starts.push_back(block(next_value_, c, count));
    for (int32_t c : cell.inputs) out_.in_starts.push_back(block(next_read_, c, count));
    for (int32_t i = 0; i < count; ++i) {
      int32_t* rows = out_.output_rows.data() + values_.firings[out_.order[first + i]].output;
      for (size_t k = 0; k < cell.outputs.size(); ++k) rows[k] = out_.out_starts[out_at + k] + i;
    }
    out_.out_starts.resize(out_.waves.size() * out_.max_out);
    out_.in_starts.resize(out_.waves.size() * out_.max_in);
  }

  const Program& program_;
  const FrameTable& frames_;
  const Values& values_;
  const LayoutOptions& options_;
  Layout& out_;
  std::vector<int32_t> next_value_, next_read_;  // next free row, a class
  std::vector<int32_t> next_cell_;               // next free row, a cell
};

}  // namespace

Status lay_out(const Program& program, const FrameTable& frames, const Values& values,
               const LayoutOptions& options, Layout& out) {
  return LayoutBuilder(program, frames, values, options, out).run();
}

}  // namespace jaxrec
