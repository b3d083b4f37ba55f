// Copies of arrays that somebody else owns.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "core/array.h"

namespace jaxrec {

/// Owns what it copies. XLA may use the memory of an argument again as soon as a call is done.
class ArrayCopies {
 public:
  Array add(const Array& array) {
    const size_t bytes = bytes_of(array);
    memory_.emplace_back(new char[bytes + 1]);
    dims_.emplace_back(new int64_t[array.dims.size() + 1]);
    if (bytes != 0) std::memcpy(memory_.back().get(), array.data, bytes);
    std::copy(array.dims.begin(), array.dims.end(), dims_.back().get());
    return {memory_.back().get(), array.dtype, {dims_.back().get(), array.dims.size()}};
  }

 private:
  std::vector<std::unique_ptr<char[]>> memory_;
  std::vector<std::unique_ptr<int64_t[]>> dims_;
};

}  // namespace jaxrec
