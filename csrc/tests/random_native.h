// Random native programs that end, and what plain recursion says that they return.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "tests/native_assembler.h"

namespace jaxrec::native {

/// One program: as a tree that `expected` walks, and as words. Every function takes (n, x) and
/// returns at once if n is 0 or less; calls pass a smaller n on, so all of them end.
class RandomNative {
 public:
  static constexpr int32_t kTable = 8;

  explicit RandomNative(uint32_t seed) : random_(seed) {
    for (int64_t n = below(3); n >= 0; --n) {
      functions_.emplace_back();
      functions_.back().results = 1 + below(3);
      functions_.back().memo = below(6) == 0;
    }
    for (Function& function : functions_) {
      calls_left_ = 4;
      next_ = most_ = kFirst;
      block(function.body, function, 2);
      function.registers = most_;
    }
    for (int32_t i = 0; i < kTable; ++i) table_.push_back(static_cast<int32_t>(below(1000)) - 500);
  }

  Native program() const {
    Native out;
    out.functions.clear();
    for (const Function& function : functions_) {
      Coder code;
      const size_t base = code.compare(Op::LE, 0, 0);
      encode(function.body, code);
      code.land(base);
      code.ret(Words(function.results, 1));
      out.functions.push_back({2, function.results, function.registers, code.words, function.memo});
    }
    out.outers = {table_};
    out.names = "";
    return out;
  }

  std::vector<int32_t> expected(int32_t n, int32_t x) const { return call(functions_[0], n, x); }

 private:
  enum class Kind { kAdd, kMul, kSub3, kLess, kLoad, kLoop, kCall };
  static constexpr int64_t kFirst = 2;  // registers 0 and 1 are n and x

  struct Step {
    Kind kind;
    int64_t dst, a, b;
    int64_t callee = 0;
    Words results = {};
  };

  struct Block {
    std::vector<Step> steps;
    int64_t test = -1;  // the register that chooses: below 7 or not; -1: returns
    std::unique_ptr<Block> less, more;
    Words results;
  };

  struct Function {
    Block body;
    int64_t results = 1, registers = 0;
    bool memo = false;
  };

  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random_); }
  int64_t any() { return below(next_); }
  int64_t fresh() {
    most_ = std::max(most_, next_ + 1);
    return next_++;
  }

  void block(Block& out, const Function& function, int64_t levels) {
    for (int64_t n = below(5); n >= 0; --n) step(out);
    if (levels > 0 && below(2) == 0) {
      out.test = any();
      const int64_t next = next_, calls = calls_left_;
      out.less = std::make_unique<Block>();
      block(*out.less, function, levels - 1);
      next_ = next;
      calls_left_ = calls;
      out.more = std::make_unique<Block>();
      block(*out.more, function, levels - 1);
      return;
    }
    for (int64_t i = 0; i < function.results; ++i) out.results.push_back(any());
  }

  // Calls come in runs, of which some read what others of the run return.
  void step(Block& out) {
    const auto kind = static_cast<Kind>(std::min<int64_t>(below(12), 6));  // half of them calls
    if (kind != Kind::kCall) {
      const int64_t a = any(), b = any();
      const int64_t dst = fresh();
      return out.steps.push_back(
          {kind, dst, a, b, 0, kind == Kind::kLoop ? Words{fresh()} : Words{}});
    }
    const int64_t smaller = fresh(), first = any(), dependent = below(4);
    out.steps.push_back({Kind::kSub3, smaller, 0, 0});
    int64_t x = first;
    for (int64_t n = 1 + below(3); n > 0 && calls_left_ > 0; --n, --calls_left_) {
      Step call{Kind::kCall, 0, smaller, x, below(static_cast<int64_t>(functions_.size()))};
      for (int64_t i = 0; i < functions_[call.callee].results; ++i) call.results.push_back(fresh());
      if (dependent == 0) x = call.results[0];
      out.steps.push_back(std::move(call));
    }
  }

  static void encode(const Block& block, Coder& code) {
    for (const Step& step : block.steps) encode(step, code);
    if (block.test < 0) {
      code.ret(block.results);
      return;
    }
    const size_t less = code.compare(Op::LT, block.test, 7);
    encode(*block.more, code);
    code.land(less);
    encode(*block.less, code);
  }

  static void encode(const Step& step, Coder& code) {
    switch (step.kind) {
      case Kind::kAdd: code.binary(Op::ADD, step.dst, step.a, step.b); break;
      case Kind::kMul: code.binary(Op::MUL, step.dst, step.a, step.b); break;
      case Kind::kSub3: code.immediate(Op::SUB, step.dst, step.a, 3); break;
      case Kind::kLess: code.binary(Op::LT, step.dst, step.a, step.b); break;
      case Kind::kLoad:
        code.immediate(Op::AND, step.dst, step.a, kTable - 1);
        code.form(Form::LOAD, {step.dst, 0, 1, step.dst});
        break;
      case Kind::kLoop: loop(step, step.results[0], code); break;
      case Kind::kCall: code.call(step.callee, 7, {step.a, step.b}, step.results); break;
    }
  }

  // dst = b, then 3 * (dst + a) as often as the last four bits of a say.
  static void loop(const Step& step, int64_t left, Coder& code) {
    code.immediate(Op::AND, left, step.a, 15).form(Form::MOVE, {step.dst, step.b});
    const auto top = static_cast<int64_t>(code.words.size());
    const size_t out = code.compare(Op::LE, left, 0);
    code.binary(Op::ADD, step.dst, step.dst, step.a).immediate(Op::MUL, step.dst, step.dst, 3);
    code.immediate(Op::SUB, left, left, 1).form(Form::LOOP, {top}).land(out);
  }

  std::vector<int32_t> call(const Function& function, int32_t n, int32_t x) const {
    if (n <= 0) return std::vector<int32_t>(function.results, x);
    std::vector<int32_t> registers(function.registers);
    registers[0] = n;
    registers[1] = x;
    return run(function.body, registers);
  }

  std::vector<int32_t> run(const Block& block, std::vector<int32_t>& registers) const {
    for (const Step& step : block.steps) run(step, registers);
    if (block.test >= 0)
      return run(registers[block.test] < 7 ? *block.less : *block.more, registers);
    std::vector<int32_t> out;
    out.reserve(block.results.size());
    for (int64_t reg : block.results) out.push_back(registers[reg]);
    return out;
  }

  void run(const Step& step, std::vector<int32_t>& registers) const {
    const auto a = static_cast<uint32_t>(registers[step.a]);
    const auto b = static_cast<uint32_t>(registers[step.b]);
    int32_t& dst = registers[step.dst];
    switch (step.kind) {
      case Kind::kAdd: dst = static_cast<int32_t>(a + b); break;
      case Kind::kMul: dst = static_cast<int32_t>(a * b); break;
      case Kind::kSub3: dst = static_cast<int32_t>(a - 3); break;
      case Kind::kLess: dst = static_cast<int32_t>(a) < static_cast<int32_t>(b); break;
      case Kind::kLoad: dst = table_[a & (kTable - 1)]; break;
      case Kind::kLoop: {
        uint32_t sum = b;
        for (uint32_t left = a & 15; left > 0; --left) sum = 3 * (sum + a);
        dst = static_cast<int32_t>(sum);
        break;
      }
      case Kind::kCall: {
        const std::vector<int32_t> results =
            call(functions_[step.callee], registers[step.a], registers[step.b]);
        for (size_t i = 0; i < results.size(); ++i) registers[step.results[i]] = results[i];
      }
    }
  }

  std::mt19937 random_;
  std::vector<Function> functions_;
  std::vector<int32_t> table_;
  int64_t next_ = 0, most_ = 0, calls_left_ = 0;
};

}  // namespace jaxrec::native
