// How many threads can run at the same time, and how many workers do.
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

/// That a caller may ask for; domains, which are numbered as workers are, are no more either.
constexpr int64_t kMostWorkers = 1024;

/// The number of workers where the caller does not say.
inline int32_t automatic_workers() { return std::min(processors(), 8); }

}  // namespace jaxrec
