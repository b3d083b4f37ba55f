// How the core reports failure: a code and a complete message, never an exception.
#pragma once

#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <utility>

namespace jaxrec {

enum class Code { kOk, kCapacity, kRecursionLimit, kIndex, kProgram, kInternal };

/// The code's name as Python sees it.
inline constexpr const char* code_name(Code code) {
  constexpr const char* kNames[] = {"OK",    "CAPACITY", "RECURSION_LIMIT",
                                    "INDEX", "PROGRAM",  "INTERNAL"};
  return kNames[static_cast<int>(code)];
}

/// The outcome of an operation. `needed` is the size a CAPACITY failure asks for.
struct [[nodiscard]] Status {
  Code code = Code::kOk;
  std::string text;
  int64_t needed = 0;

  bool ok() const { return code == Code::kOk; }
};

/// A fault of whoever encoded the program or bound the arrays, not of the user.
inline Status program_error(const std::string& what) {
  return {Code::kProgram,
          "JaxRecError: malformed control program: " + what + ". This is a bug in jaxrec.", 0};
}

inline Status internal_error(const std::string& what) {
  return {Code::kInternal, "JaxRecError: the scheduler failed: " + what + ".", 0};
}

/// The calls of a function, or of one that is not known here, take more memory than there is.
inline Status memory_error(const std::string& function = "a recursive function") {
  return {Code::kInternal,
          "JaxRecError: out of memory while the calls of " + function +
              " were made. Does it reach its base case? If so, make fewer calls at a time, or "
              "declare how many there may be: rec_fn(max_calls=...).",
          0};
}

inline Status capacity_error(std::string text, int64_t needed) {
  return {Code::kCapacity, "CapacityError: " + std::move(text), needed};
}

/// Does some work that fails by its status; an exception on the way is a status too.
template <class Work>
Status guarded(Work&& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return memory_error();
  } catch (const std::exception& error) {
    return internal_error(error.what());
  }
}

}  // namespace jaxrec
