// How a failure is told.
#include "tests/check.h"

#include <cstdio>

namespace jaxrec {

void fail(const char* file, int line, const char* condition) {
  std::printf("%s:%d: failed: %s\n", file, line, condition);
  ++failures;
}

int report(const char* name) {
  std::printf("%s: %s\n", name, failures == 0 ? "ok" : "FAILED");
  return failures == 0 ? 0 : 1;
}

}  // namespace jaxrec
