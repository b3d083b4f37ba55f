// Failures as texts: what goes wrong on the way is one too.
#include <new>
#include <stdexcept>
#include <string>

#include "core/status.h"
#include "tests/check.h"

namespace jaxrec {
namespace {

bool has(const Status& status, const char* text) {
  return status.text.find(text) != std::string::npos;
}

void exceptions_are_statuses() {
  CHECK(guarded([] { return Status{}; }).ok());
  const Status memory = guarded([]() -> Status { throw std::bad_alloc(); });
  CHECK(memory.code == Code::kInternal);
  CHECK(
      has(memory, "JaxRecError: out of memory while the calls of a recursive function were made"));
  const Status other = guarded([]() -> Status { throw std::length_error("too long"); });
  CHECK(has(other, "JaxRecError: the scheduler failed: too long."));
}

void a_lack_of_memory_names_the_function() {
  const Status status = memory_error("fib");
  CHECK(has(status, "the calls of fib were made. Does it reach its base case?"));
  CHECK(has(status, "rec_fn(max_calls=...)"));
}

}  // namespace
}  // namespace jaxrec

int main() {
  jaxrec::exceptions_are_statuses();
  jaxrec::a_lack_of_memory_names_the_function();
  return jaxrec::report("status");
}
