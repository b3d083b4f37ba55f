// Buffers that a schedule is filled into, by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/plan.h"

namespace jaxrec {

class TableBuffers {
 public:
  struct CellTables {
    size_t reads, readers, exports, lanes;  // the first buffer of each
  };

  explicit TableBuffers(const Schedule& schedule);

  static int64_t columns(const Layout& layout) { return 3 + layout.max_in + layout.max_out; }

  int64_t size() const { return static_cast<int64_t>(sizes_.size()); }

  /// Makes a buffer too small.
  void shrink(size_t buffer) { sizes_[buffer].rows /= 2; }

  const std::vector<Array>& arrays();

  int32_t* ints(size_t buffer) { return reinterpret_cast<int32_t*>(data_[buffer].data()); }

  std::vector<CellTables> cells;
  size_t root_readers, results, collected_results, reader_rows, collected_lanes;

 private:
  struct Size {
    DType dtype;
    int64_t rows, columns;
  };

  void add(DType dtype, int64_t rows, int64_t columns = 1);
  size_t add_some(size_t count, int64_t rows);
  void add_cell(const Cell& cell, int64_t rows);

  std::vector<Size> sizes_;
  std::vector<std::vector<char>> data_;
  std::vector<std::vector<int64_t>> dims_;
  std::vector<Array> arrays_;
};

}  // namespace jaxrec
