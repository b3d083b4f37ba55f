// How many threads can run at the same time, and how many workers do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>

#ifdef __linux__
#include <sched.h>
#endif

namespace jaxrec {

/// The number of processors that this process may run on; 0 if the system does not say.
inline int32_t count_processors() {
#ifdef __linux__
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) return CPU_COUNT(&allowed);
#endif
  return static_cast<int32_t>(std::thread::hardware_concurrency());
}

/// The same, at least 1. Asked once: it takes as long as a hundred frames.
inline int32_t processors() {
  static const int32_t count = std::max(count_processors(), 1);
  return count;
}

/// That a caller may ask for; domains, which are numbered as workers are, are no more either.
constexpr int64_t kMostWorkers = 1024;

/// The number of workers where the caller does not say.
inline int32_t automatic_workers() { return std::min(processors(), 8); }

}  // namespace jaxrec
