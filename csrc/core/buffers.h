// Taking a caller's buffers one after another, with their checks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/plan.h"

namespace jaxrec {

/// The buffers that a schedule is written to. Keeps the first fault: look at `ok` before writing.
class Buffers {
 public:
  Buffers(const Schedule& schedule, const std::vector<Array>& buffers)
      : schedule_(schedule), buffers_(buffers), written_(buffers.size()) {}

  size_t size() const { return buffers_.size(); }
  const std::vector<int64_t>& written() const { return written_; }
  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }

  /// The next buffer, which must be of this type.
  Array take(DType dtype, int64_t rank, const char* what) {
    const Array& array = buffers_[at_++];
    if (array.dtype != dtype || array.rank() != rank) {
      fail(program_error("buffer " + std::to_string(at_ - 1) + " (" + what + ") should be " +
                         dtype_name(dtype) + " of rank " + std::to_string(rank)));
      return {nullptr, dtype, {}};
    }
    wrote(array.size());
    return array;
  }

  /// How many elements of the buffer taken last belong to the schedule, if not all.
  void wrote(int64_t elements) { written_[at_ - 1] = elements; }

  /// Leaves the next buffers alone.
  void pass(size_t count) {
    for (; count > 0; --count) written_[at_++] = 0;
  }

  Span<int32_t> take_ints(const char* what) {
    const Array array = take(DType::kI32, 1, what);
    return {array.as<int32_t>(), ok() ? static_cast<size_t>(array.size()) : 0};
  }

  static void clear(const Array& array, int64_t rows) {
    std::fill_n(array.as<char>(), bytes_of(array, rows), char{0});
  }

  /// Fails unless the buffers have room for what this invocation needs.
  void require(const char* what, int64_t needed, int64_t got) {
    if (needed <= got) return;
    const Names names(schedule_.program, schedule_.names);
    fail(capacity_error(names.function(schedule_.program.entry) + " needs " +
                            std::to_string(needed) + " " + what + " in this invocation of " +
                            std::to_string(schedule_.expansion.num_calls) +
                            " calls, but there is room for " + std::to_string(got) +
                            ". Pass rec_fn(max_calls=...) with a greater number.",
                        needed));
  }

  void fail(Status status) {
    if (ok()) status_ = std::move(status);
  }

 private:
  const Schedule& schedule_;
  const std::vector<Array>& buffers_;
  std::vector<int64_t> written_;  // elements of each
  size_t at_ = 0;                 // next buffer
  Status status_;
};

}  // namespace jaxrec
