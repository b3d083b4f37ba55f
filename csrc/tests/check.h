// The tests' check macro: it reports and goes on, so that one run shows every failure.
#pragma once

namespace jaxrec {

inline int failures = 0;

#define CHECK(condition)                                            \
  do {                                                              \
    if (!(condition)) jaxrec::fail(__FILE__, __LINE__, #condition); \
  } while (false)

/// Reports a condition that does not hold.
void fail(const char* file, int line, const char* condition);

/// The exit status of a test program.
int report(const char* name);

}  // namespace jaxrec
