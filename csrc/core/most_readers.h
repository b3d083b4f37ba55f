// How many read a value, at most, as far as the program tells.
#pragma once

#include <cstdint>
#include <vector>

#include "core/program.h"

namespace jaxrec {

/// The most readers of a value in any invocation, those included that get it as an argument or as
/// the result of a call; `kMany` if there is no small bound. A sum over few readers, of which it is
/// known how many, takes no loop.
struct MostReaders {
  static constexpr int32_t kMany = 8;

  std::vector<std::vector<int32_t>> outputs;  // of each output of each cell
  std::vector<int32_t> roots;                 // of each data argument of the roots
};

/// `collect`: whether results of all calls of the entry function are read, not of the roots alone.
MostReaders most_readers(const Program& program, bool collect);

}  // namespace jaxrec
