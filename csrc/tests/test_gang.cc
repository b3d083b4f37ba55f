// Lanes in lockstep give what each gives alone, and fail as the first of them would.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/check.h"
#include "tests/native_assembler.h"
#include "tests/scale.h"

namespace jaxrec::native {
namespace {

constexpr int64_t kInt = static_cast<int64_t>(DType::kI32);

bool has(const Status& status, const std::string& text) {
  return status.text.find(text) != std::string::npos;
}

std::vector<int32_t> numbers(int32_t count, int32_t modulus) {
  std::vector<int32_t> out;
  for (int32_t i = 0; i < count; ++i) out.push_back((i * 7919) % modulus);
  return out;
}

// f(n, x) = n == 0 ? x : f(n - 1, 3 * x + n): a call in the place of a jump.
Native last_call() {
  Coder code;
  const size_t base = code.compare(Op::EQ, 0, 0);
  code.immediate(Op::MUL, 1, 1, 3).binary(Op::ADD, 1, 1, 0).immediate(Op::SUB, 0, 0, 1);
  code.call(0, 4, {0, 1}, {2}).ret({2});
  code.land(base);
  code.ret({1});
  return {{{2, 1, 3, code.words}}, {}};
}

int32_t of_last_call(int32_t n, uint32_t x) {
  for (; n > 0; --n) x = 3 * x + static_cast<uint32_t>(n);
  return static_cast<int32_t>(x);
}

void test_last_call() {
  const std::vector<int32_t> n = numbers(500, 300), x = numbers(500, 1000);
  for (int64_t workers : {1, 2, 4}) {
    Native program = last_call();
    program.serial_calls = 0;
    CHECK(program.run(workers, {n, x}).ok());
    for (size_t i = 0; i < n.size(); ++i) CHECK(program.results[0][i] == of_last_call(n[i], x[i]));
  }
}

// Each call counts as nested, though it takes no frame.
void test_depth() {
  for (int64_t workers : {1, 2}) {
    Native program = last_call();
    program.depth_limit = 300;
    std::vector<int32_t> n(100, 5), x(100, 1);
    n[70] = 299;
    CHECK(program.run(workers, {n, x}).ok());
    n[70] = 300;
    const Status status = program.run(workers, {n, x});
    CHECK(status.code == Code::kRecursionLimit);
    CHECK(has(status, "nested more than 300 calls deep") && has(status, "f -> f[4] -> f[4] -> "));
  }
  // Lanes that go deeper than gangs do go on alone.
  Native fib = fib_program();
  fib.depth_limit = 15;
  std::vector<int32_t> n(64, 14);
  CHECK(fib.run(1, {n}).ok());
  n[63] = 16;
  CHECK(fib.run(1, {n}).code == Code::kRecursionLimit);
}

// f(n) = n < 2 ? n : f(n - 1) + f(n - 2), deep on one side.
void test_deep_chains() {
  Coder code;
  const size_t base = code.compare(Op::EQ, 0, 0);
  code.immediate(Op::SUB, 1, 0, 1).call(0, 4, {1}, {1}).immediate(Op::ADD, 1, 1, 1).ret({1});
  code.land(base);
  code.ret({0});
  Native program{{{1, 1, 2, code.words}}, {}};
  const int32_t deepest = kSanitized ? 3000 : 20'000;
  std::vector<int32_t> n = numbers(200, deepest);
  for (int64_t workers : {1, 3}) {
    CHECK(program.run(workers, {n}).ok());
    CHECK(program.results[0] == n);
  }
}

void test_uneven_recursion() {
  std::vector<int32_t> n = numbers(400, kSanitized ? 13 : 18), want;
  for (const int32_t i : n) {
    int32_t a = 0, b = 1;
    for (int32_t k = 0; k < i; ++k) b = a + b, a = b - a;
    want.push_back(a);
  }
  for (int64_t workers : {1, 2, 4}) {
    Native fib = fib_program();
    fib.serial_calls = 0;
    CHECK(fib.run(workers, {n}).ok());
    CHECK(fib.results[0] == want);
  }
}

// The calls of all lanes are counted, of those that go on alone too.
void test_max_calls() {
  Native program = last_call();
  const std::vector<int32_t> n = numbers(100, 50), x(100, 0);
  int64_t calls = 0;
  for (const int32_t i : n) calls += i + 1;
  program.max_calls = calls;
  CHECK(program.run(1, {n, x}).ok());
  program.max_calls = calls - 1;
  CHECK(program.run(1, {n, x}).needed == calls);
  CHECK(program.run(2, {n, x}).needed == calls);
  program.max_calls = -1;
  program.call_limit = 10'000;
  const std::vector<int32_t> many(100, 1000);
  CHECK(has(program.run(1, {many, x}), "more than 10000 calls"));
}

// f(n) = n == 3 ? a[n] : a[a[n]], one lane out of range.
void test_wrong_index() {
  Coder code;
  const size_t base = code.compare(Op::EQ, 0, 3);
  code.form(Form::LOAD, {1, 0, 1, 0}).form(Form::LOAD, {1, 0, 1, 1}).ret({1});
  code.land(base);
  code.form(Form::LOAD, {1, 0, 1, 0}).ret({1});
  Native program{{{1, 1, 2, code.words}}, {{1, 2, 0, 9}}};
  program.names = "f\nn\na";
  std::vector<int32_t> n(100, 1);
  n[50] = 3;
  CHECK(program.run(1, {n}).ok());
  CHECK(program.results[0][49] == 0 && program.results[0][50] == 9);
  n[40] = 4;
  n[60] = -1;
  std::string first;
  for (int64_t workers : {1, 2, 4}) {
    const Status status = program.run(workers, {n});
    CHECK(status.code == Code::kIndex && has(status, "f read a[4]"));
    if (first.empty()) first = status.text;
    CHECK(status.text == first);
  }
}

// Each lane takes a branch of its own out of five, in a loop.
void test_switch() {
  Coder code;
  code.form(Form::CONST, {1, kInt, 0});
  const auto top = static_cast<int64_t>(code.words.size());
  const size_t end = code.compare(Op::LE, 0, 0);
  code.immediate(Op::AND, 2, 0, 7);
  code.form(Form::SWITCH, {2, 5, 0, 0, 0, 0, 0});
  const size_t table = code.words.size() - 5;
  std::vector<size_t> joins;
  for (int64_t k = 0; k < 5; ++k) {
    code.land(table + k);
    code.immediate(Op::MUL, 1, 1, k + 2).immediate(Op::ADD, 1, 1, k);
    code.form(Form::JUMP, {0});
    joins.push_back(code.words.size() - 1);
  }
  for (const size_t join : joins) code.land(join);
  code.immediate(Op::SUB, 0, 0, 1).form(Form::LOOP, {top});
  code.land(end);
  code.ret({1});
  Native program{{{1, 1, 3, code.words}}, {}};
  const std::vector<int32_t> n = numbers(300, 200);
  for (int64_t workers : {1, 2}) {
    CHECK(program.run(workers, {n}).ok());
    for (size_t i = 0; i < n.size(); ++i) {
      uint32_t want = 0;
      for (int32_t left = n[i]; left > 0; --left) {
        const auto k = static_cast<uint32_t>(std::min(left & 7, 4));
        want = want * (k + 2) + k;
      }
      CHECK(program.results[0][i] == static_cast<int32_t>(want));
    }
  }
}

void test_interrupt() {
  Coder code;
  code.form(Form::LOOP, {0}).ret({0});
  Native program{{{1, 1, 1, code.words}}, {}};
  program.give_up = [] { return true; };
  CHECK(has(program.run(1, {std::vector<int32_t>(100, 1)}), "interrupted"));
}

}  // namespace
}  // namespace jaxrec::native

int main() {
  using namespace jaxrec::native;
  test_last_call();
  test_depth();
  test_deep_chains();
  test_uneven_recursion();
  test_max_calls();
  test_wrong_index();
  test_switch();
  test_interrupt();
  return jaxrec::report("test_gang");
}
