// The encoding of native programs, and the arrays of an invocation.
#include "tests/native_assembler.h"

#include <utility>

#include "core/native_run.h"

namespace jaxrec::native {

Coder& Coder::form(Form form, std::initializer_list<int64_t> operands) {
  words.push_back(static_cast<int64_t>(form));
  words.insert(words.end(), operands);
  return *this;
}

Coder& Coder::immediate(Op op, int64_t dst, int64_t a, int64_t value) {
  return form(Form::BINARY_IMM, {static_cast<int64_t>(op), dst, kInt, a, value});
}

Coder& Coder::binary(Op op, int64_t dst, int64_t a, int64_t b) {
  return form(Form::BINARY, {static_cast<int64_t>(op), dst, kInt, a, b});
}

Coder& Coder::call(int64_t callee, int64_t site, const Words& args, const Words& results) {
  form(Form::CALL, {callee, site});
  put(words, args);
  put(words, results);
  return *this;
}

Coder& Coder::ret(const Words& registers) {
  form(Form::RETURN);
  put(words, registers);
  return *this;
}

size_t Coder::compare(Op op, int64_t a, int64_t value) {
  form(Form::COMPARE_IMM, {static_cast<int64_t>(op), kInt, a, value, 0});
  return words.size() - 1;
}

Words Native::encode() const {
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

Status Native::run(int64_t workers, std::vector<std::vector<int32_t>> roots) {
  return run_words(encode(), workers, std::move(roots));
}

Status Native::run_words(const Words& words, int64_t workers,
                         std::vector<std::vector<int32_t>> roots) {
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
  request.give_up = give_up;
  request.workers = workers;
  return native::run(words, request);
}

Native fib_program(int64_t extra, bool memo) {
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
