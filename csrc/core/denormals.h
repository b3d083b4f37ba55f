// Floating arithmetic without denormal numbers, as XLA's programs have it: what the control machine
// computes must be what a cell would.
#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#elif defined(__aarch64__)
#include <cstdint>
#endif

namespace jaxrec {

// While it lives, operations of this thread read and write zero for numbers too small to be normal.
class FlushDenormals {
 public:
  FlushDenormals() : before_(read()) { write(before_ | kFlush); }
  ~FlushDenormals() { write(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__SSE__)
  using State = unsigned;
  static constexpr State kFlush = 0x8040;  // results, operands
  static State read() { return _mm_getcsr(); }
  static void write(State state) { _mm_setcsr(state); }
#elif defined(__aarch64__)
  using State = uint64_t;
  static constexpr State kFlush = uint64_t{1} << 24;
  static State read() {
    State state;
    asm volatile("mrs %0, fpcr" : "=r"(state));
    return state;
  }
  static void write(State state) { asm volatile("msr fpcr, %0" ::"r"(state)); }
#else
#error "jaxrec does not know how this processor flushes denormal numbers"
#endif

  const State before_;
};

}  // namespace jaxrec
