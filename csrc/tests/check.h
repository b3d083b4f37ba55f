// The tests' check macro: it reports and goes on, so that one run shows every failure.
#pragma once

#include <cstdio>

namespace jaxrec {

inline int failures = 0;

#define CHECK(condition)                                                  \
  do {                                                                    \
    if (!(condition)) {                                                   \
      std::printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      ++jaxrec::failures;                                                 \
    }                                                                     \
  } while (false)

/// The exit status of a test program.
inline int report(const char* name) {
  std::printf("%s: %s\n", name, failures == 0 ? "ok" : "FAILED");
  return failures == 0 ? 0 : 1;
}

}  // namespace jaxrec
