#include "core/fill.h"

#include <algorithm>

#include "core/buffers.h"

namespace jaxrec {
namespace {

class Filler : private Buffers {
 public:
  Filler(const Schedule& schedule, const std::vector<Array>& buffers, const FillOptions& options)
      : Buffers(schedule, buffers),
        schedule_(schedule),
        program_(schedule.program),
        layout_(schedule.layout),
        options_(options) {}

  Status run() {
    if (size() != num_buffers())
      return program_error("got " + std::to_string(size()) + " buffers, expected " +
                           std::to_string(num_buffers()));
    if (options_.capacity.size() != 0 &&
        options_.capacity.size() != 2 * static_cast<size_t>(program_.num_classes))
      return program_error("capacity needs two numbers a class");
    info();
    if (options_.waves) waves_and_cells();
    else pass(1 + num_cell_buffers());
    if (ok()) result_buffers();
    if (options_.waves) reads_and_exports();
    else pass(static_cast<size_t>(program_.num_classes));
    if (schedule_.collect && ok()) collected();
    if (options_.written != nullptr) *options_.written = written();
    return status();
  }

 private:
  struct CellBuffers {
    std::vector<Span<int32_t>> reads, readers;
    std::vector<Array> exports;
    int32_t* lanes;
  };

  size_t num_buffers() const {
    const Function& entry = program_.entry_function();
    const size_t n = 2 + static_cast<size_t>(program_.num_classes) + entry.data.size() +
                     entry.results.size() + num_cell_buffers();
    return n + (schedule_.collect ? entry.results.size() + 1 + entry.control.size() : 0);
  }

  size_t num_cell_buffers() const {
    size_t n = 0;
    for (const Cell& cell : program_.cells)
      n += cell.inputs.size() + cell.outputs.size() + cell.exports.size() + 1;
    return n;
  }

  void waves_and_cells() {
    waves();
    for (size_t i = 0; i < program_.cells.size() && ok(); ++i) cell_buffers(i);
  }

  void reads_and_exports() {
    for (int32_t c = 0; c < program_.num_classes && ok(); ++c) class_buffers(c);
    if (ok()) write_reads();
    if (ok() && options_.readers) write_readers();
    if (ok()) write_cells();
  }

  int64_t padded(int64_t rows) const { return rows + 2 * static_cast<int64_t>(layout_.pad); }

  void info() {
    const Span<int32_t> out = take_ints("info");
    if (!ok()) return;
    const int64_t expected = info_size(schedule_);
    if (static_cast<int64_t>(out.size()) != expected)
      return fail(program_error("info has " + std::to_string(out.size()) + " elements, expected " +
                                std::to_string(expected)));
    const int32_t head[kInfoHead] = {static_cast<int32_t>(layout_.waves.size()),
                                     schedule_.frames->size(),
                                     static_cast<int32_t>(layout_.collected.size())};
    int32_t* next = std::copy(std::begin(head), std::end(head), out.begin());
    for (const auto* part : {&layout_.result_starts, &layout_.collect_starts, &layout_.cell_rows})
      next = std::copy(part->begin(), part->end(), next);
  }

  void waves() {
    const Array array = take(DType::kI32, 2, "waves");
    if (!ok()) return;
    const int64_t columns = kWaveHead + layout_.max_out + layout_.max_in;
    if (array.dims[1] != columns)
      return fail(program_error("waves has " + std::to_string(array.dims[1]) +
                                " columns, expected " + std::to_string(columns)));
    const int64_t n = static_cast<int64_t>(layout_.waves.size());
    require("waves", n, array.dims[0]);
    if (!ok()) return;
    wrote(n * columns);
    int32_t* row = array.as<int32_t>();
    for (int64_t i = 0; i < n; ++i, row += columns) write_wave(schedule_, i, row);
  }

  void cell_buffers(size_t i) {
    const Cell& type = program_.cells[i];
    const int64_t needed = padded(layout_.cell_rows[i]);
    CellBuffers& cell = cells_.emplace_back();
    for (size_t k = 0; k < type.inputs.size(); ++k) {
      const Span<int32_t> reads = take_rows("the reads of a cell", "firings", needed);
      std::fill(reads.begin(), reads.end(), layout_.pad);
      cell.reads.push_back(reads);
    }
    for (size_t k = 0; k < type.outputs.size(); ++k)
      cell.readers.push_back(take_readers("firings", needed));
    for (DType dtype : type.exports) {
      const Array out = take(dtype, 1, "an export");
      require("firings", needed, out.size());
      if (!ok()) return;
      // All of a float's: what was there might look like a NaN that the user made.
      const int64_t cleared = is_float(dtype) ? out.size() : needed;
      clear(out, cleared);
      wrote(cleared);
      cell.exports.push_back(out);
    }
    const Span<int32_t> lanes = take_rows("the lanes of a cell", "firings", needed);
    std::fill(lanes.begin(), lanes.end(), 0);
    cell.lanes = lanes.begin();
  }

  // Pointers by row, one more than rows; nothing where the caller wants none.
  Span<int32_t> take_readers(const char* what, int64_t needed) {
    if (!options_.readers) {
      take_ints("readers");
      wrote(0);
      return {};
    }
    const Span<int32_t> out = take_rows("readers", what, needed + 1);
    std::fill(out.begin(), out.end(), 0);
    return out;
  }

  // The rows of a table that are in use.
  Span<int32_t> take_rows(const char* table, const char* what, int64_t needed) {
    const Span<int32_t> out = take_ints(table);
    require(what, needed, static_cast<int64_t>(out.size()));
    wrote(needed);
    return ok() ? out.first(static_cast<size_t>(needed)) : Span<int32_t>{};
  }

  void result_buffers() {
    const Function& entry = program_.entry_function();
    for (size_t k = 0; k < entry.data.size(); ++k)
      root_readers_.push_back(take_readers("lanes", layout_.lanes));
    take_results(entry.results.size(), "results", schedule_.frames->roots);
    if (schedule_.collect) take_results(entry.results.size(), "collected calls", layout_.collected);
  }

  void take_results(size_t count, const char* what, const std::vector<int32_t>& frames) {
    for (size_t k = 0; k < count && ok(); ++k) {
      const Span<int32_t> rows = take_ints("result rows");
      require(what, static_cast<int64_t>(frames.size()), static_cast<int64_t>(rows.size()));
      if (!ok()) return;
      std::fill(rows.begin(), rows.end(), layout_.pad);
      for (size_t i = 0; i < frames.size(); ++i) rows[i] = layout_.row(result(frames[i], k));
    }
  }

  ValueId result(int32_t frame, size_t k) const {
    return schedule_.values.results[schedule_.frames->starts[frame].result + k];
  }

  void class_buffers(int32_t c) {
    const Span<int32_t> rows = take_ints("reader_rows");
    const int64_t values = padded(layout_.value_rows[c]), reads = padded(layout_.read_rows[c]);
    if (options_.capacity.size() != 0) {
      require("value rows", values, options_.capacity[c]);
      require("read rows", reads, options_.capacity[program_.num_classes + c]);
    }
    if (options_.readers) require("read rows", reads, static_cast<int64_t>(rows.size()));
    wrote(options_.readers ? reads : 0);
    reader_rows_.push_back(rows);
  }

  // Calls fun(class, value, read row) for every input of every firing, in the order of read rows.
  template <class Fun>
  void each_read(Fun fun) const {
    const std::vector<Firing>& firings = schedule_.values.firings;
    const int32_t* starts = layout_.in_starts.data();
    for (const Wave& wave : layout_.waves) {
      const std::vector<int32_t>& classes = program_.cells[wave.cell].inputs;
      for (size_t k = 0; k < classes.size(); ++k)
        for (int32_t i = 0; i < wave.count; ++i) {
          const Firing& firing = firings[layout_.order[wave.first + i]];
          fun(classes[k], schedule_.values.inputs[firing.input + k], starts[k] + i);
        }
      starts += layout_.max_in;
    }
  }

  // Calls fun(class, value, read row) for what the results read.
  template <class Fun>
  void each_result_read(Fun fun) const {
    const std::vector<int32_t>& classes = program_.entry_function().results;
    const auto block = [&](const std::vector<int32_t>& starts, const std::vector<int32_t>& frames) {
      for (size_t k = 0; k < starts.size(); ++k)
        for (size_t i = 0; i < frames.size(); ++i)
          fun(classes[k], result(frames[i], k), starts[k] + static_cast<int32_t>(i));
    };
    block(layout_.result_starts, schedule_.frames->roots);
    block(layout_.collect_starts, layout_.collected);
  }

  // Counts the readers of each value on the way, if they are wanted.
  void write_reads() {
    if (options_.readers) ends_ = reader_places();
    for (const Wave& wave : layout_.waves) {
      const std::vector<Span<int32_t>>& reads = cells_[wave.cell].reads;
      for (int32_t i = 0; i < wave.count; ++i) {
        const Firing& firing = schedule_.values.firings[layout_.order[wave.first + i]];
        const ValueId* inputs = schedule_.values.inputs.data() + firing.input;
        for (size_t k = 0; k < reads.size(); ++k) {
          reads[k][wave.cell_row + i] = layout_.row(inputs[k]);
          if (options_.readers) ++end(inputs[k]);
        }
      }
    }
  }

  // The transpose of the reads: a counting sort of the read rows by value, a class at a time.
  // Ascending, since they are visited in order.
  void write_readers() {
    each_result_read([&](int32_t, ValueId value, int32_t) { ++end(value); });
    counts_to_starts();
    each_read(
        [&](int32_t c, ValueId value, int32_t read) { reader_rows_[c][end(value)++] = read; });
    each_result_read(
        [&](int32_t c, ValueId value, int32_t read) { reader_rows_[c][end(value)++] = read; });
  }

  // The pointer behind a value's readers.
  int32_t& end(ValueId value) {
    if (value >= 0) return *ends_[value];
    return root_readers_[~value / layout_.lanes][~value % layout_.lanes + 1];
  }

  // Where the pointer behind each output is. It counts readers first, then says where they start,
  // and at the end where they end, which is where the next row's start.
  std::vector<int32_t*> reader_places() {
    std::vector<int32_t*> places(layout_.output_rows.size());
    for (const Wave& wave : layout_.waves)
      for (int32_t i = 0; i < wave.count; ++i) {
        const Firing& firing = schedule_.values.firings[layout_.order[wave.first + i]];
        CellBuffers& cell = cells_[wave.cell];
        for (size_t k = 0; k < cell.readers.size(); ++k)
          places[firing.output + k] = cell.readers[k].begin() + wave.cell_row + i + 1;
      }
    return places;
  }

  void counts_to_starts() {
    std::vector<int32_t> totals(program_.num_classes);
    const auto table = [&](int32_t c, Span<int32_t> ends) {
      for (size_t i = 0; i < ends.size(); ++i) {
        const int32_t count = ends[i];
        ends[i] = totals[c];
        totals[c] += count;
      }
    };
    for (size_t i = 0; i < cells_.size(); ++i)
      for (size_t k = 0; k < cells_[i].readers.size(); ++k)
        table(program_.cells[i].outputs[k], cells_[i].readers[k]);
    for (size_t k = 0; k < root_readers_.size(); ++k)
      table(program_.entry_function().data[k], root_readers_[k]);
  }

  // Exports were recorded in firing order, and each firing's row is known from its wave.
  void write_cells() {
    const std::vector<Firing>& firings = schedule_.values.firings;
    std::vector<int32_t> rows(firings.size());
    for (const Wave& wave : layout_.waves)
      for (int32_t i = 0; i < wave.count; ++i)
        rows[layout_.order[wave.first + i]] = wave.cell_row + i;
    const Word* word = schedule_.frames->exports.data();
    for (size_t i = 0; i < firings.size(); ++i) {
      const CellBuffers& cell = cells_[firings[i].cell];
      for (const Array& out : cell.exports) store_element(out.data, out.dtype, rows[i], *word++);
      cell.lanes[rows[i]] = schedule_.frames->calls[firings[i].frame]->lane;
    }
  }

  void collected() {
    const std::vector<int32_t>& frames = layout_.collected;
    const int64_t n = static_cast<int64_t>(frames.size());
    const Span<int32_t> lanes = take_ints("the lanes of calls");
    require("collected calls", n, static_cast<int64_t>(lanes.size()));
    if (!ok()) return;
    std::fill(lanes.begin(), lanes.end(), 0);
    for (int64_t i = 0; i < n; ++i) lanes[i] = schedule_.frames->calls[frames[i]]->lane;
    const std::vector<DType>& types = program_.entry_function().control;
    for (size_t k = 0; k < types.size() && ok(); ++k) {
      const Array out = take(types[k], 1, "an argument of calls");
      if (!ok()) return;
      require("collected calls", n, out.size());
      if (!ok()) return;
      clear(out, out.size());
      for (int64_t i = 0; i < n; ++i)
        store_element(out.data, types[k], i, schedule_.frames->calls[frames[i]]->control()[k]);
    }
  }

  const Schedule& schedule_;
  const Program& program_;
  const Layout& layout_;
  const FillOptions& options_;
  std::vector<CellBuffers> cells_;
  std::vector<int32_t*> ends_;               // of each output's readers
  std::vector<Span<int32_t>> root_readers_;  // a root data argument
  std::vector<Span<int32_t>> reader_rows_;   // a class
};

}  // namespace

void write_wave(const Schedule& schedule, size_t number, int32_t* row) {
  const Layout& layout = schedule.layout;
  const Wave& wave = layout.waves[number];
  row[0] = wave.cell * static_cast<int32_t>(schedule.num_widths) + wave.width;
  row[1] = wave.count;
  row[2] = wave.cell_row;
  row = std::copy_n(layout.out_starts.begin() + number * layout.max_out, layout.max_out,
                    row + kWaveHead);
  std::copy_n(layout.in_starts.begin() + number * layout.max_in, layout.max_in, row);
}

int64_t info_size(const Schedule& schedule) {
  const Program& program = schedule.program;
  const int64_t results = static_cast<int64_t>(program.entry_function().results.size());
  return kInfoHead + results * (schedule.collect ? 2 : 1) +
         static_cast<int64_t>(program.cells.size());
}

Status fill(const Schedule& schedule, const std::vector<Array>& buffers,
            const FillOptions& options) {
  if (!schedule.is_laid_out()) return internal_error("the schedule is still to be laid out");
  return guarded([&] { return Filler(schedule, buffers, options).run(); });
}

}  // namespace jaxrec
