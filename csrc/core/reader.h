// Reading an encoded program word by word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/array.h"
#include "core/dtype.h"
#include "core/status.h"

namespace jaxrec {

/// Keeps the first fault and then answers zeros, so that decoding code reads straight through and
/// asks for the fault only where a loop could otherwise run away.
class Reader {
 public:
  explicit Reader(Span<const int64_t> words) : words_(words) {}

  int64_t word() {
    if (at_ >= words_.size()) return fail("it ends too early");
    return words_[at_++];
  }

  /// A number in [0, limit).
  int32_t below(int64_t limit, const char* what) {
    const int64_t value = word();
    if (ok() && (value < 0 || value >= limit))
      return fail(std::string(what) + " is " + std::to_string(value) + ", expected 0 to below " +
                  std::to_string(limit));
    return static_cast<int32_t>(value);
  }

  /// The length of a list that follows: never more than the words that are left.
  int32_t count(const char* what) { return below(static_cast<int64_t>(left()) + 1, what); }

  /// Where a jump goes: an offset from the beginning of a function, beyond where it stands.
  int32_t jump(size_t begin, size_t end) {
    const int64_t here = static_cast<int64_t>(at_ - begin);
    const int32_t offset = below(static_cast<int64_t>(end - begin), "a jump target");
    if (ok() && offset <= here) return fail("a jump goes backward");
    return offset;
  }

  /// The number `expected`, which says how many words follow.
  int32_t exactly(size_t expected, const char* what) {
    const int64_t got = word();
    if (ok() && got != static_cast<int64_t>(expected))
      return fail(std::string(what) + ": got " + std::to_string(got) + ", expected " +
                  std::to_string(expected));
    return static_cast<int32_t>(ok() ? expected : 0);
  }

  DType dtype() { return static_cast<DType>(below(kNumDTypes, "an element type")); }

  int32_t fail(const std::string& what) {
    if (ok()) status_ = program_error(what + " (word " + std::to_string(at_) + ")");
    at_ = words_.size();
    return 0;
  }

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  size_t at() const { return at_; }
  size_t left() const { return words_.size() - at_; }
  void seek(size_t at) { at_ = at; }

 private:
  Span<const int64_t> words_;
  size_t at_ = 0;
  Status status_;
};

}  // namespace jaxrec
