// Writing native programs by hand, and running them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "core/native_opcodes.h"
#include "core/status.h"
#include "tests/assembler.h"

namespace jaxrec::native {

/// The code of a function; targets are offsets, set with `land`.
class Coder {
 public:
  Coder& form(Form form, std::initializer_list<int64_t> operands = {});
  Coder& immediate(Op op, int64_t dst, int64_t a, int64_t value);
  Coder& binary(Op op, int64_t dst, int64_t a, int64_t b);
  Coder& call(int64_t callee, int64_t site, const Words& args, const Words& results);
  Coder& ret(const Words& registers);
  /// A jump if a comparison with a number holds; returns the place of its target.
  size_t compare(Op op, int64_t a, int64_t value);
  void land(size_t place) { words[place] = static_cast<int64_t>(words.size()); }

  Words words;
};

/// A function of int32 registers.
struct Routine {
  int64_t args, results, registers;
  Words code;
  bool memo = false;
};

/// A program of int32 scalars, and one invocation of it.
struct Native {
  std::vector<Routine> functions;
  std::vector<std::vector<int32_t>> outers;
  std::string names = "f";
  int64_t max_calls = -1;
  int64_t depth_limit = -1;
  int64_t call_limit = -1;
  int64_t serial_calls = 20'000;
  std::function<bool()> give_up = {};

  Words encode() const;

  /// Runs lanes; `roots` has a list an argument. Results are in `results`, a list each.
  Status run(int64_t workers, std::vector<std::vector<int32_t>> roots);

  Status run_words(const Words& words, int64_t workers, std::vector<std::vector<int32_t>> roots);

  std::vector<std::vector<int32_t>> results = {};
};

/// fib(n), and after it as many more calls of itself side by side as `extra`, each of n - 3.
Native fib_program(int64_t extra = 0, bool memo = false);

}  // namespace jaxrec::native
