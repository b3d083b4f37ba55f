// The native machine: results, stealing, depth, memo tables, errors.
#include <string>
#include <utility>
#include <vector>

#include "core/native_memo.h"
#include "tests/check.h"
#include "tests/native_assembler.h"
#include "tests/scale.h"

namespace jaxrec::native {
namespace {

bool has(const Status& status, const char* text) {
  return status.text.find(text) != std::string::npos;
}

int32_t wide_fib(int32_t n, int32_t extra) {
  if (n < 2) return n;
  const int32_t own = wide_fib(n - 1, extra) + wide_fib(n - 2, extra);
  return extra == 0 ? own : own + extra * wide_fib(n - 3, extra);
}

void test_fib() {
  Native fib = fib_program();
  for (int64_t workers : {1, 2, 3, 8}) {
    CHECK(fib.run(workers, {{25}}).ok());
    CHECK(fib.results[0][0] == 75025);
  }
}

void test_many_siblings() {
  for (int64_t extra : {1, 2, 5}) {
    Native program = fib_program(extra);
    // Threads come after 20'000 calls, and a sanitizer's slow calls give them time to steal.
    const int32_t n = (extra == 5 ? 15 : 18) - (kSanitized && extra > 1 ? 2 : 0);
    const int32_t want = wide_fib(n, static_cast<int32_t>(extra));
    for (int64_t workers : {1, 2, 4, 7})
      for (int i = 0; i < 5; ++i) {
        CHECK(program.run(workers, {{n}}).ok());
        CHECK(program.results[0][0] == want);
      }
  }
}

void test_lanes() {
  std::vector<int32_t> lanes, want;
  for (int32_t i = 0; i < 300; ++i) {
    lanes.push_back(i % (kSanitized ? 20 : 23));
    want.push_back(wide_fib(lanes.back(), 0));
  }
  for (int64_t workers : {1, 2, 5}) {
    Native fib = fib_program();
    CHECK(fib.run(workers, {lanes}).ok());
    CHECK(fib.results[0] == want);
  }
  Native none = fib_program();
  CHECK(none.run(2, {{}}).ok());
}

// f(n) = (0, n) at 0, else (a + 1, b) of (a, b) = f(n - 1): a chain, with two results.
Native chain(int32_t registers = 3) {
  Coder code;
  const size_t base = code.compare(Op::EQ, 0, 0);
  code.immediate(Op::SUB, 1, 0, 1).call(0, 4, {1}, {2, 1}).immediate(Op::ADD, 2, 2, 1);
  code.ret({2, 1});
  code.land(base);
  code.form(Form::CONST, {1, kInt, 0}).ret({1, 0});
  return {{{1, 2, registers, code.words}}, {}};
}

void test_depth() {
  Native deep = chain();
  CHECK(deep.run(2, {{1'000'000}}).ok());
  CHECK(deep.results[0][0] == 1'000'000 && deep.results[1][0] == 0);
  deep.depth_limit = 1000;
  CHECK(deep.run(2, {{999}}).ok());
  const Status status = deep.run(2, {{1000}});
  CHECK(status.code == Code::kRecursionLimit);
  CHECK(has(status, "nested more than 1000 calls deep"));
  CHECK(has(status, "f -> f[4] -> f[4] -> "));
  // Memory bounds it, which frames of many registers, few of them used, reach fast, if nobody
  // allows more calls. A sanitizer writes all of them.
  if (kSanitized) return;
  Native wide = chain(4000);
  CHECK(wide.run(1, {{34'000}}).code == Code::kRecursionLimit);
  wide.max_calls = 35'000;
  CHECK(wide.run(1, {{34'000}}).ok() && wide.results[0][0] == 34'000);
}

// f(n) = n == 0 ? a[a[0]] : f(n - 1) + f(n - 1)
void test_wrong_index() {
  Coder code;
  const size_t base = code.compare(Op::EQ, 0, 0);
  code.immediate(Op::SUB, 1, 0, 1).call(0, 0, {1}, {2}).call(0, 1, {1}, {3});
  code.binary(Op::ADD, 1, 2, 3).ret({1});
  code.land(base);
  code.form(Form::LOAD, {1, 0, 1, 0}).form(Form::LOAD, {2, 0, 1, 1}).ret({2});
  Native program{{{1, 1, 4, code.words}}, {{1, 7}}};
  program.names = "f\nn\na";
  for (int64_t workers : {1, 2, 4}) {
    CHECK(program.run(workers, {{15}}).ok());
    CHECK(program.results[0][0] == 7 << 15);
  }
  program.outers[0][0] = 2;
  std::string first;
  for (int64_t workers : {1, 2, 4}) {
    const Status status = program.run(workers, {{15}});
    CHECK(status.code == Code::kIndex && has(status, "f read a[2]"));
    if (first.empty()) first = status.text;
    CHECK(status.text == first);
  }
}

void test_max_calls() {
  Native fib = fib_program();
  fib.max_calls = 177;
  CHECK(fib.run(1, {{10}}).ok());
  fib.max_calls = 176;
  const Status status = fib.run(1, {{10}});
  CHECK(status.code == Code::kCapacity && status.needed == 177);
  for (int64_t workers : {1, 2, 4})  // calls that are given away count once too
    CHECK(fib.run(workers, {{24, 3}}).needed == 150049 + 5);
}

void test_call_limit() {
  Native fib = fib_program();
  fib.call_limit = 100'000;
  CHECK(fib.run(2, {{20}}).ok());
  std::string first;
  for (int64_t workers : {1, 2, 4}) {
    const Status status = fib.run(workers, {{60}});
    CHECK(status.code == Code::kRecursionLimit && has(status, "more than 100000 calls"));
    if (first.empty()) first = status.text;
    CHECK(status.text == first);
  }
}

void test_memo() {
  Native fib = fib_program(0, true);
  fib.max_calls = 43 + 43 + 31 + 1;  // lanes share nothing
  CHECK(fib.run(4, {{42, 42, 30, 1}}).ok());
  CHECK(fib.results[0][0] == 267914296 && fib.results[0][1] == 267914296);
  CHECK(fib.results[0][2] == 832040 && fib.results[0][3] == 1);
  --fib.max_calls;
  CHECK(fib.run(4, {{42, 42, 30, 1}}).code == Code::kCapacity);
  Coder code;  // f(n) = f(n)
  code.call(0, 3, {0}, {1}).ret({1});
  Native cycle{{{1, 1, 2, code.words, true}}, {}};
  const Status status = cycle.run(1, {{5}});
  CHECK(status.code == Code::kRecursionLimit && has(status, "f -> f[3]"));
  CHECK(has(status, "equal arguments"));
}

void test_memo_table() {
  Memo memo;
  for (int32_t round = 0; round < 3; ++round) {
    for (Word k = 0; k < 1000; ++k) {
      const Word args[] = {k % 10, k / 10};
      const Memo::Call call = memo.find_or_open(1, args, 2, 1);
      CHECK(call.is_new && memo.is_open(call.at));
      memo.results(call.at)[0] = k + round;
      if (k % 2 == 0) memo.close(call.at);
    }
    for (Word k = 0; k < 1000; ++k) {
      const Word args[] = {k % 10, k / 10};
      const Memo::Call call = memo.find_or_open(1, args, 2, 1);
      CHECK(!call.is_new && memo.is_open(call.at) == (k % 2));
      CHECK(memo.results(call.at)[0] == k + round);
      CHECK(memo.find_or_open(0, args, 2, 1).is_new);
      CHECK(memo.find_or_open(1, args, 1, 1).is_new == (k < 10));
    }
    memo.clear();
  }
}

void test_switch_and_select() {
  Coder code;
  code.form(Form::SWITCH, {0, 3, 0, 0, 0});
  const size_t targets = code.words.size() - 3;
  for (int64_t k = 0; k < 3; ++k) {
    code.land(targets + k);
    if (k < 2) code.form(Form::RETURN_IMM, {kInt, 10 * k});
  }
  code.form(Form::CONST, {1, kInt, -5});
  code.form(Form::COMPARE, {static_cast<int64_t>(Op::GT), kInt, 0, 1, 0});
  const size_t more = code.words.size() - 1;
  code.ret({1});
  code.land(more);
  code.form(Form::WRAP, {2, kInt, 1, 3}).form(Form::SELECT, {2, 0, 1, 2}).ret({2});
  Native program{{{1, 1, 3, code.words}}, {}};
  CHECK(program.run(1, {{-3, 0, 1, 2, 9}}).ok());
  CHECK((program.results[0] == std::vector<int32_t>{0, 0, 10, -2, -2}));
}

// f(n) = f(n - 1) + f(n - 2) + 100 * n, the last by a loop that adds n a turn.
void test_loops() {
  Coder code;
  const size_t base = code.compare(Op::LT, 0, 2);
  code.immediate(Op::SUB, 1, 0, 1).call(0, 0, {1}, {2}).immediate(Op::SUB, 1, 0, 2);
  code.call(0, 1, {1}, {3}).binary(Op::ADD, 2, 2, 3).form(Form::CONST, {4, kInt, 0});
  const auto top = static_cast<int64_t>(code.words.size());
  const size_t end = code.compare(Op::GE, 4, 100);
  code.binary(Op::ADD, 2, 2, 0).immediate(Op::ADD, 4, 4, 1).form(Form::LOOP, {top}).land(end);
  code.ret({2});
  code.land(base);
  code.ret({0});
  Native program{{{1, 1, 5, code.words}}, {}};
  program.serial_calls = 5'000;  // turns count too
  std::vector<int32_t> want = {0, 1};
  for (int32_t n = 2; n <= 16; ++n) want.push_back(want[n - 1] + want[n - 2] + 100 * n);
  for (int64_t workers : {1, 2, 5}) {
    CHECK(program.run(workers, {{16, 3}}).ok());
    CHECK((program.results[0] == std::vector<int32_t>{want[16], want[3]}));
  }
}

void test_refused_loops() {
  Coder ahead;
  ahead.form(Form::LOOP, {2}).ret({0});
  Native forward{{{1, 1, 1, ahead.words}}, {}};
  CHECK(has(forward.run(1, {{0}}), "a loop goes forward"));
  Coder code;  // register 1 is written on the way into the loop, but not on all ways round it
  const size_t skip = code.compare(Op::LT, 0, 2);
  code.form(Form::CONST, {1, kInt, 3});
  const auto top = static_cast<int64_t>(code.words.size());
  code.form(Form::MOVE, {2, 1}).land(skip);
  code.form(Form::LOOP, {top}).ret({0});
  Native less{{{1, 1, 3, code.words}}, {}};
  CHECK(has(less.run(1, {{0}}), "a loop comes back with less than it began with"));
}

void test_refused() {
  const Words good = fib_program().encode();
  Native fib = fib_program();
  CHECK(fib.run_words({}, 1, {{3}}).code == Code::kProgram);
  for (size_t n = 0; n < good.size(); ++n) {
    const Words cut(good.begin(), good.begin() + static_cast<int64_t>(n));
    CHECK(fib.run_words(cut, 1, {{3}}).code == Code::kProgram);
  }
  Coder code;  // register 1 is written on one path only
  const size_t skip = code.compare(Op::LT, 0, 2);
  code.form(Form::CONST, {1, kInt, 3});
  code.land(skip);
  code.ret({1});
  Native unset{{{1, 1, 2, code.words}}, {}};
  CHECK(has(unset.run(1, {{0}}), "register 1 is read before it is written"));
  fib.outers.resize(65'535, {0});
  CHECK(fib.run(1, {{3}}).ok());
  fib.outers.resize(65'536, {0});  // more than an instruction can number
  CHECK(has(fib.run(1, {{3}}), "a number of outer arrays is 65536"));
}

}  // namespace
}  // namespace jaxrec::native

int main() {
  using namespace jaxrec::native;
  test_fib();
  test_many_siblings();
  test_lanes();
  test_depth();
  test_wrong_index();
  test_max_calls();
  test_call_limit();
  test_memo();
  test_memo_table();
  test_switch_and_select();
  test_loops();
  test_refused_loops();
  test_refused();
  return jaxrec::report("test_native");
}
