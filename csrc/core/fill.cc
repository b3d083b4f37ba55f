#include "core/fill.h"

#include <algorithm>
#include <new>
#include <utility>

namespace jaxrec {
namespace {

class Filler {
 public:
  Filler(const Schedule& schedule, const std::vector<Array>& buffers, const FillOptions& options)
      : schedule_(schedule),
        program_(schedule.program),
        layout_(schedule.layout),
        buffers_(buffers),
        options_(options) {}

  Status run() {
    if (buffers_.size() != num_buffers())
      return program_error("got " + std::to_string(buffers_.size()) + " buffers, expected " +
                           std::to_string(num_buffers()));
    if (options_.value_capacity.size() != 0 && options_.value_capacity.size() != static_cast<size_t>(program_.num_classes))
      return program_error("value_capacity needs a number a class");
    info();
    waves();
    for (int32_t c = 0; c < program_.num_classes && status_.ok(); ++c) class_buffers(c);
    if (status_.ok()) write_reads();
    for (const ClassBuffers& c : classes_)
      if (status_.ok() && c.ptr.size() != 0) readers(c);
    for (size_t i = 0; i < program_.cells.size() && status_.ok(); ++i) cell_buffers(i);
    if (status_.ok()) write_cells();
    if (schedule_.collect && status_.ok()) collected();
    return status_;
  }

 private:
  struct ClassBuffers {
    int32_t rows;  // read rows in use, with the first padding
    Span<int32_t> reads, ptr, idx;
  };
  struct CellBuffers {
    std::vector<Array> exports;
    int32_t* lanes;
  };

  size_t num_buffers() const {
    size_t n = 2 + 3 * static_cast<size_t>(program_.num_classes);
    for (const Cell& cell : program_.cells) n += cell.exports.size() + 1;
    return n + (schedule_.collect ? 1 + program_.entry_function().control.size() : 0);
  }

  // The next buffer, which must be of this type.
  Array take(DType dtype, int64_t rank, const char* what) {
    const Array& array = buffers_[at_++];
    if (array.dtype != dtype || array.rank() != rank) {
      fail(program_error("buffer " + std::to_string(at_ - 1) + " (" + what + ") should be " + dtype_name(dtype) +
                         " of rank " + std::to_string(rank)));
      return {nullptr, dtype, {}};
    }
    return array;
  }

  Span<int32_t> take_ints(const char* what) {
    const Array array = take(DType::kI32, 1, what);
    return {array.as<int32_t>(), status_.ok() ? static_cast<size_t>(array.size()) : 0};
  }

  static void clear(const Array& array) {
    std::fill_n(array.as<char>(), byte_width(array.dtype) * array.size(), char{0});
  }

  void require(const char* what, int64_t needed, int64_t got) {
    if (needed <= got) return;
    const Names names(program_, schedule_.names);
    fail(capacity_error(names.function(program_.entry) + " needs " + std::to_string(needed) + " " + what +
                            " in this invocation of " + std::to_string(schedule_.expansion.num_calls) +
                            " calls, but there is room for " + std::to_string(got) +
                            ". Pass rec_fn(max_calls=...) with a greater number.",
                        needed));
  }

  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  int64_t padded(int64_t rows) const { return rows + 2 * static_cast<int64_t>(layout_.pad); }

  void info() {
    const Span<int32_t> out = take_ints("info");
    if (!status_.ok()) return;
    const int64_t expected = info_size(schedule_);
    if (static_cast<int64_t>(out.size()) != expected)
      return fail(program_error("info has " + std::to_string(out.size()) + " elements, expected " +
                                std::to_string(expected)));
    const int32_t head[] = {static_cast<int32_t>(layout_.waves.size()), schedule_.frames->size(),
                            static_cast<int32_t>(layout_.collected.size()), schedule_.expansion.depth};
    int32_t* next = std::copy(std::begin(head), std::end(head), out.begin());
    for (const auto* part : {&layout_.result_starts, &layout_.collect_starts, &layout_.value_rows,
                             &layout_.read_rows, &layout_.cell_rows})
      next = std::copy(part->begin(), part->end(), next);
  }

  void waves() {
    const Array array = take(DType::kI32, 2, "waves");
    if (!status_.ok()) return;
    const int64_t columns = 3 + layout_.max_out + layout_.max_in;
    if (array.dims[1] != columns)
      return fail(program_error("waves has " + std::to_string(array.dims[1]) + " columns, expected " +
                                std::to_string(columns)));
    const int64_t n = static_cast<int64_t>(layout_.waves.size());
    require("waves", n, array.dims[0]);
    if (!status_.ok()) return;
    int32_t* row = array.as<int32_t>();
    for (int64_t i = 0; i < n; ++i, row += columns) write_wave(schedule_, i, row);
    for (int64_t i = n; i < array.dims[0]; ++i, row += columns) {
      std::fill_n(row, columns, 0);
      row[0] = -1;
    }
  }

  void class_buffers(int32_t c) {
    const Span<int32_t> reads = take_ints("reads");
    Span<int32_t> ptr = take_ints("reader_ptr");
    Span<int32_t> idx = take_ints("reader_idx");
    if (!status_.ok()) return;
    if (!options_.readers) ptr = idx = {};
    const int64_t needed = padded(layout_.value_rows[c]);
    require("read rows", padded(layout_.read_rows[c]), static_cast<int64_t>(reads.size()));
    if (options_.value_capacity.size() != 0) require("value rows", needed, options_.value_capacity[c]);
    if (idx.size() != 0 || ptr.size() != 0) {
      require("value rows", needed, static_cast<int64_t>(ptr.size()) - 1);
      require("reader rows", padded(layout_.read_rows[c]), static_cast<int64_t>(idx.size()));
    }
    classes_.push_back({layout_.pad + layout_.read_rows[c], reads, ptr, idx});
    std::fill(reads.begin(), reads.end(), layout_.pad);
  }

  void write_reads() {
    const std::vector<Firing>& firings = schedule_.values.firings;
    const int32_t* starts = layout_.in_starts.data();
    for (const Wave& wave : layout_.waves) {
      const std::vector<int32_t>& inputs = program_.cells[wave.cell].inputs;
      for (size_t k = 0; k < inputs.size(); ++k) {
        int32_t* out = classes_[inputs[k]].reads.begin() + starts[k];
        for (int32_t i = 0; i < wave.count; ++i)
          out[i] = layout_.row(schedule_.values.inputs[firings[layout_.order[wave.first + i]].input + k]);
      }
      starts += layout_.max_in;
    }
    write_results(layout_.result_starts, schedule_.frames->roots);
    write_results(layout_.collect_starts, layout_.collected);
  }

  void write_results(const std::vector<int32_t>& starts, const std::vector<int32_t>& frames) {
    const std::vector<int32_t>& results = program_.entry_function().results;
    for (size_t k = 0; k < starts.size(); ++k) {
      int32_t* out = classes_[results[k]].reads.begin() + starts[k];
      for (int32_t frame : frames)
        *out++ = layout_.row(schedule_.values.results[schedule_.frames->starts[frame].result + k]);
    }
  }

  // The transpose of reads: a counting sort of the read rows by value row. Ascending, since they are
  // visited in order.
  void readers(const ClassBuffers& c) const {
    int32_t* begin = c.ptr.begin() + 1;  // begin[v]: counts, then where v starts, at the end where v + 1 does
    std::fill(c.ptr.begin(), c.ptr.end(), 0);
    for (int32_t r = layout_.pad; r < c.rows; ++r) ++begin[c.reads[r]];
    int32_t total = 0;
    for (size_t v = 0; v + 1 < c.ptr.size(); ++v) {
      const int32_t count = begin[v];
      begin[v] = total;
      total += count;
    }
    for (int32_t r = layout_.pad; r < c.rows; ++r) c.idx[begin[c.reads[r]]++] = r;
    std::fill(c.idx.begin() + total, c.idx.end(), 0);
  }

  void cell_buffers(size_t i) {
    CellBuffers& cell = cells_.emplace_back();
    for (DType dtype : program_.cells[i].exports) {
      cell.exports.push_back(take(dtype, 1, "an export"));
      if (!status_.ok()) return;
      require("firings", padded(layout_.cell_rows[i]), cell.exports.back().size());
      clear(cell.exports.back());
    }
    const Span<int32_t> lanes = take_ints("the lanes of a cell");
    require("firings", padded(layout_.cell_rows[i]), static_cast<int64_t>(lanes.size()));
    std::fill(lanes.begin(), lanes.end(), 0);
    cell.lanes = lanes.begin();
  }

  // Exports were recorded in firing order, and each firing's row is known from its wave.
  void write_cells() {
    const std::vector<Firing>& firings = schedule_.values.firings;
    std::vector<int32_t> rows(firings.size());
    for (const Wave& wave : layout_.waves)
      for (int32_t i = 0; i < wave.count; ++i) rows[layout_.order[wave.first + i]] = wave.cell_row + i;
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
    if (!status_.ok()) return;
    std::fill(lanes.begin(), lanes.end(), 0);
    for (int64_t i = 0; i < n; ++i) lanes[i] = schedule_.frames->calls[frames[i]]->lane;
    const std::vector<DType>& types = program_.entry_function().control;
    for (size_t k = 0; k < types.size() && status_.ok(); ++k) {
      const Array out = take(types[k], 1, "an argument of calls");
      if (!status_.ok()) return;
      require("collected calls", n, out.size());
      if (!status_.ok()) return;
      clear(out);
      for (int64_t i = 0; i < n; ++i)
        store_element(out.data, types[k], i, schedule_.frames->calls[frames[i]]->control()[k]);
    }
  }

  const Schedule& schedule_;
  const Program& program_;
  const Layout& layout_;
  const std::vector<Array>& buffers_;
  const FillOptions& options_;
  size_t at_ = 0;  // next buffer
  std::vector<ClassBuffers> classes_;
  std::vector<CellBuffers> cells_;
  Status status_;
};

}  // namespace

void write_wave(const Schedule& schedule, size_t number, int32_t* row) {
  const Layout& layout = schedule.layout;
  const Wave& wave = layout.waves[number];
  row[0] = wave.cell * static_cast<int32_t>(schedule.num_widths) + wave.width;
  row[1] = wave.count;
  row[2] = wave.cell_row;
  row = std::copy_n(layout.out_starts.begin() + number * layout.max_out, layout.max_out, row + 3);
  std::copy_n(layout.in_starts.begin() + number * layout.max_in, layout.max_in, row);
}

int64_t info_size(const Schedule& schedule) {
  const Program& program = schedule.program;
  const int64_t results = static_cast<int64_t>(program.entry_function().results.size());
  return 4 + results * (schedule.collect ? 2 : 1) + 2 * static_cast<int64_t>(program.num_classes) +
         static_cast<int64_t>(program.cells.size());
}

Status fill(const Schedule& schedule, const std::vector<Array>& buffers, const FillOptions& options) {
  try {
    return Filler(schedule, buffers, options).run();
  } catch (const std::bad_alloc&) {
    return internal_error("out of memory");
  }
}

}  // namespace jaxrec
