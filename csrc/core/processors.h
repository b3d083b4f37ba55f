// How many threads can run at the same time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>

namespace jaxrec {

/// The number of processors, at least 1. Asked once: it takes as long as a hundred frames.
inline int32_t processors() {
  static const auto count = static_cast<int32_t>(std::thread::hardware_concurrency());
  return std::max(count, 1);
}

}  // namespace jaxrec
