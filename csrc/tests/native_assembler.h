// Writing native programs by hand, and running them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "core/native_opcodes.h"
#include "core/native_run.h"
#include "tests/assembler.h"

namespace jaxrec::native {

inline constexpr int64_t kLong = static_cast<int64_t>(DType::kI64);

/// The code of a function; targets are offsets, set with `land`.
class Coder {
 public:
  Coder& form(Form form, std::initializer_list<int64_t> operands = {}) {
    words.push_back(static_cast<int64_t>(form));
    words.insert(words.end(), operands);
    return *this;
  }
  Coder& immediate(Op op, int64_t dst, int64_t a, int64_t value) {
    return form(Form::BINARY_IMM, {static_cast<int64_t>(op), dst, kInt, a, value});
  }
  Coder& binary(Op op, int64_t dst, int64_t a, int64_t b) {
    return form(Form::BINARY, {static_cast<int64_t>(op), dst, kInt, a, b});
  }
  Coder& call(int64_t callee, int64_t site, const Words& args, const Words& results) {
    form(Form::CALL, {callee, site});
    put(words, args);
    put(words, results);
    return *this;
  }
  Coder& ret(const Words& registers) {
    form(Form::RETURN);
    put(words, registers);
    return *this;
  }
  /// A jump if a comparison with a number holds; returns the place of its target.
  size_t compare(Op op, int64_t a, int64_t value) {
    form(Form::COMPARE_IMM, {static_cast<int64_t>(op), kInt, a, value, 0});
    return words.size() - 1;
  }
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

  Words encode() const {
    Words out = {kMagic, kVersion, static_cast<int64_t>(outers.size())};
    for (size_t i = 0; i < outers.size(); ++i) out.insert(out.end(), {kInt, 1});
    for (int64_t count : {functions[0].args, functions[0].results}) {
      out.push_back(count);
      for (int64_t i = 0; i < count; ++i) out.insert(out.end(), {kInt, 1});
    }
    out.push_back(static_cast<int64_t>(functions.size()));
    for (const Routine& f : functions) {
      out.push_back(f.memo);
      put(out, Words(f.args, kInt));
      put(out, Words(f.results, kInt));
      out.push_back(f.registers);
      put(out, f.code);
    }
    return out;
  }

  /// Runs lanes; `roots` has a list an argument. Results are in `results`, a list each.
  Status run(int64_t workers, std::vector<std::vector<int32_t>> roots) {
    return run_words(encode(), workers, std::move(roots));
  }

  Status run_words(const Words& words, int64_t workers, std::vector<std::vector<int32_t>> roots) {
    const int64_t lanes = roots.empty() ? 1 : static_cast<int64_t>(roots[0].size());
    results.assign(functions[0].results, std::vector<int32_t>(lanes));
    std::vector<int64_t> dims(outers.size() + 1, lanes);
    Words outer_lanes;
    Request request;
    for (auto& root : roots) request.roots.push_back({root.data(), DType::kI32, {&dims[0], 1}});
    for (size_t i = 0; i < outers.size(); ++i) {
      dims[i + 1] = static_cast<int64_t>(outers[i].size());
      request.outers.push_back({outers[i].data(), DType::kI32, {&dims[i + 1], 1}});
      outer_lanes.insert(outer_lanes.end(), {0, -1});
    }
    for (auto& out : results) request.results.push_back({out.data(), DType::kI32, {&dims[0], 1}});
    request.outer_lanes = outer_lanes;
    request.names = names;
    request.lanes = lanes;
    request.max_calls = max_calls;
    request.depth_limit = depth_limit;
    request.call_limit = call_limit;
    request.serial_calls = serial_calls;
    request.workers = workers;
    return native::run(words, request);
  }

  std::vector<std::vector<int32_t>> results = {};
};

/// fib(n), and after it as many more calls of itself side by side as `extra`, each of n - 3.
inline Native fib_program(int64_t extra = 0, bool memo = false) {
  Coder code;
  const size_t base = code.compare(Op::LT, 0, 2);
  code.immediate(Op::SUB, 1, 0, 1).immediate(Op::SUB, 2, 0, 2);
  if (extra > 0) code.immediate(Op::SUB, 3, 0, 3);
  code.call(0, 0, {1}, {1}).call(0, 1, {2}, {2});
  for (int64_t i = 0; i < extra; ++i) code.call(0, 2 + i, {3}, {4 + i});
  code.binary(Op::ADD, 1, 1, 2);
  for (int64_t i = 0; i < extra; ++i) code.binary(Op::ADD, 1, 1, 4 + i);
  code.ret({1});
  code.land(base);
  code.ret({0});
  return {{{1, 1, 4 + extra, code.words, memo}}, {}};
}

}  // namespace jaxrec::native
