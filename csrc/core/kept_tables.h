// The tables of a schedule that is asked for again.
//
// A schedule is a function of control values alone. Where the structure is fixed and only weights
// change, as in most optimization over one tree or one dynamic program, all calls of a compiled
// program have the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/array.h"

namespace jaxrec {

/// What one place of a compiled program has planned last. May be used by several threads.
class KeptTables {
 public:
  /// Writes the tables of the operands into the buffers, and into `written` how many elements of
  /// each they have. False: they are not kept.
  bool write(const std::vector<Array>& operands, const std::vector<Array>& buffers,
             std::vector<int64_t>& written) const;

  /// Takes note of the tables that operands have led to. They are kept where the operands are those
  /// of the note before: what differs from call to call costs no more than a copy of the operands.
  /// Of operands that are much larger than the tables no note is taken: a search looks at few
  /// elements of them, and a copy would take longer than the schedule.
  void note(const std::vector<Array>& operands, const std::vector<Array>& buffers,
            const std::vector<int64_t>& written);

 private:
  struct Bytes {
    Bytes(const void* from, size_t bytes);
    bool equal(const void* other, size_t bytes) const;

    std::unique_ptr<char[]> data;
    size_t size;
  };
  struct Kept {
    bool has(const std::vector<Array>& operands) const;

    std::vector<Bytes> operands;
    std::vector<Bytes> tables;  // none: not yet
    std::vector<int64_t> written;
  };

  std::shared_ptr<const Kept> last() const;

  mutable std::mutex mutex_;
  std::shared_ptr<const Kept> last_;
};

}  // namespace jaxrec
