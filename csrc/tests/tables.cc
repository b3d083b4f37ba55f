// The buffers of a schedule, in the order that `fill` says.
#include "tests/tables.h"

#include "core/fill.h"

namespace jaxrec {

TableBuffers::TableBuffers(const Schedule& schedule) {
  const Layout& layout = schedule.layout;
  const Function& entry = schedule.program.entry_function();
  const int64_t pad = 2 * layout.pad, calls = static_cast<int64_t>(layout.collected.size());
  add(DType::kI32, info_size(schedule));
  add(DType::kI32, static_cast<int64_t>(layout.waves.size()), columns(layout));
  for (size_t i = 0; i < schedule.program.cells.size(); ++i)
    add_cell(schedule.program.cells[i], layout.cell_rows[i] + pad);
  root_readers = add_some(entry.data.size(), layout.lanes + 1);
  results = add_some(entry.results.size(), layout.lanes);
  collected_results = add_some(schedule.collect ? entry.results.size() : 0, calls);
  reader_rows = sizes_.size();
  for (int32_t rows : layout.read_rows) add(DType::kI32, rows + pad);
  collected_lanes = sizes_.size();
  if (!schedule.collect) return;
  add(DType::kI32, calls);
  for (DType dtype : entry.control) add(dtype, calls);
}

const std::vector<Array>& TableBuffers::arrays() {
  dims_.clear();
  arrays_.clear();
  for (const Size& size : sizes_) {
    data_.emplace_back(8 * size.rows * size.columns);
    dims_.push_back({size.rows, size.columns});
  }
  for (size_t i = 0; i < sizes_.size(); ++i)
    arrays_.push_back({data_[i].data(), sizes_[i].dtype, {dims_[i].data(), i == 1 ? 2u : 1u}});
  return arrays_;
}

void TableBuffers::add(DType dtype, int64_t rows, int64_t columns) {
  sizes_.push_back({dtype, rows, columns});
}

size_t TableBuffers::add_some(size_t count, int64_t rows) {
  for (size_t k = 0; k < count; ++k) add(DType::kI32, rows);
  return sizes_.size() - count;
}

void TableBuffers::add_cell(const Cell& cell, int64_t rows) {
  CellTables tables;
  tables.reads = add_some(cell.inputs.size(), rows);
  tables.readers = add_some(cell.outputs.size(), rows + 1);
  tables.exports = sizes_.size();
  for (DType dtype : cell.exports) add(dtype, rows);
  tables.lanes = add_some(1, rows);
  cells.push_back(tables);
}

}  // namespace jaxrec
