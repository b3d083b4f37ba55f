// How random programs are drawn, one number after another.
#include "tests/random_program.h"

#include <algorithm>
#include <limits>

namespace jaxrec {

RandomProgram::RandomProgram(uint32_t seed, bool stepped) : random_(seed), stepped_(stepped) {}

Job RandomProgram::job() {
  spec_.outers = {{kInt, 1}};
  spec_.classes = pick(1, 3);
  for (int64_t n = pick(1, 4); n > 0; --n)
    spec_.cells.push_back({classes(0, 3), classes(1, 2), exports()});
  // One source cell a class, so that a value of any class can always be made.
  for (int64_t c = 0; c < spec_.classes; ++c) spec_.cells.push_back({{}, {c}, {kInt}});
  for (int64_t c = 0; stepped_ && c < spec_.classes; ++c)
    if (c == 0 || pick(0, 1) == 1) spec_.imports.push_back({c, kInt});
  spec_.functions.resize(pick(1, 3));
  for (FunctionSpec& function : spec_.functions) {
    function.control = {kInt, kInt};
    function.data = classes(0, 2);
    function.results = classes(1, 2);
    function.memo = function.data.empty() && pick(0, 1) == 1;
  }
  for (FunctionSpec& function : spec_.functions) body(function);
  Job out;
  out.words = spec_.encode();
  out.outers = {std::vector<int32_t>(16)};
  for (int32_t& item : out.outers[0]) item = static_cast<int32_t>(pick(0, 5));
  for (int64_t n = pick(1, 6); n > 0; --n) {
    out.roots.push_back(static_cast<int32_t>(pick(0, stepped_ ? 9 : 7)));
    out.more_roots.push_back(static_cast<int32_t>(pick(0, 3)));
  }
  out.call_limit = 20'000;
  out.collect = pick(0, 1) == 1;
  if (pick(0, 1) == 1) {
    out.costs.clear();
    for (size_t c = 0; c < spec_.cells.size(); ++c) {
      const bool is_wide = pick(0, 1) == 1;
      const double wide = is_wide ? 2.0 : std::numeric_limits<double>::infinity();
      out.costs.insert(out.costs.end(), {1.0, wide});
    }
  }
  return out;
}

// Registers: 0 n, 1 what was passed on or imported last, 2 smaller n, 3 what the table says, 4
// the number of branches, 5 constant.
void RandomProgram::body(FunctionSpec& function) {
  Assembler code;
  slots_.clear();
  for (int64_t c : function.data) slots_.push_back(c);
  most_ = static_cast<int64_t>(slots_.size());
  const std::vector<int64_t> args = slots_;
  code.constant(5, 0);
  const bool safe = stepped_ && pick(0, 19) != 0;  // else a negative number is a wrong index
  if (safe) code.op(Op::MAX, {3, kInt, 0, 5});
  code.op(Op::LOAD, {3, 0}).list({safe ? 3 : 0});
  code.op(Op::LE, {4, kInt, 0, 5});
  const int64_t stop = code.branch(4, 2);
  code.land(stop);
  const int64_t n = pick(1, 4), branches = code.branch(3, n);
  for (int64_t i = 0; i <= n; ++i) {
    code.land(i < n ? branches + i : stop + 1);  // the last is the base case
    slots_ = args;
    for (int64_t steps = pick(0, stepped_ ? 7 : 4); steps > 0; --steps) step(code, i < n);
    Words results;
    for (int64_t c : function.results) results.push_back(value(code, c));
    code.ret(results);
  }
  function.registers = 6;
  function.slots = most_;
  function.code = code.words;
}

void RandomProgram::step(Assembler& code, bool may_call, int64_t nesting) {
  if (stepped_ && pick(0, 2) == 0) {
    if (nesting < 2 && pick(0, 1) == 0) choose(code, may_call, nesting);
    else import(code);
    return;
  }
  const int64_t kind = pick(0, may_call ? 3 : 1);
  const int64_t from = slots_.empty() ? -1 : pick(0, static_cast<int64_t>(slots_.size()) - 1);
  if (kind == 0 && from >= 0 && slots_[from] != kNoClass) {
    code.op(Op::ALIAS, {slot(slots_[from]), from});
  } else if (kind <= 1) {
    const int64_t cell = pick(0, static_cast<int64_t>(spec_.cells.size()) - 1);
    const Words inputs = values(code, spec_.cells[cell].inputs);
    code.fire(cell, Words(spec_.cells[cell].exports.size(), 0), inputs,
              slots(spec_.cells[cell].outputs));
  } else {
    const int64_t callee = pick(0, static_cast<int64_t>(spec_.functions.size()) - 1);
    const Words data = values(code, spec_.functions[callee].data);
    code.constant(5, pick(1, 3)).op(Op::SUB, {2, kInt, 0, 5});
    code.call(callee, pick(0, 9), {2, 1}, data, slots(spec_.functions[callee].results));
  }
}

void RandomProgram::import(Assembler& code) {
  const int64_t number = pick(0, static_cast<int64_t>(spec_.imports.size()) - 1);
  code.op(Op::IMPORT, {1, value(code, spec_.imports[number][0]), number});
  code.constant(5, 4).op(Op::REM, {1, kInt, 1, 5});
}

// A choice by what was imported last; its branches make one value of a class.
void RandomProgram::choose(Assembler& code, bool may_call, int64_t nesting) {
  const int64_t n = pick(1, 3), merged = pick(0, spec_.classes - 1), out = slot(merged);
  const std::vector<int64_t> before = slots_;
  const int64_t branches = code.branch(1, n);
  std::vector<int64_t> ends;
  for (int64_t i = 0; i < n; ++i) {
    code.land(branches + i);
    slots_ = before;
    slots_[out] = kNoClass;
    for (int64_t steps = pick(0, 2); steps > 0; --steps) step(code, may_call, nesting + 1);
    code.op(Op::ALIAS, {out, value(code, merged)}).op(Op::JUMP, {0});
    ends.push_back(code.here() - 1);
  }
  for (int64_t end : ends) code.land(end);
  slots_ = before;
}

// A slot that holds a value of class c: one there is, or a new one.
int64_t RandomProgram::value(Assembler& code, int64_t c) {
  std::vector<int64_t> found;
  for (size_t i = 0; i < slots_.size(); ++i)
    if (slots_[i] == c) found.push_back(static_cast<int64_t>(i));
  if (!found.empty() && pick(0, 3) != 0)
    return found[pick(0, static_cast<int64_t>(found.size()) - 1)];
  const int64_t source = static_cast<int64_t>(spec_.cells.size()) - spec_.classes + c;
  const int64_t out = slot(c);
  code.fire(source, {0}, {}, {out});
  return out;
}

Words RandomProgram::values(Assembler& code, const Words& classes) {
  Words out;
  for (int64_t c : classes) out.push_back(value(code, c));
  return out;
}

int64_t RandomProgram::slot(int64_t c) {
  slots_.push_back(c);
  most_ = std::max(most_, static_cast<int64_t>(slots_.size()));
  return static_cast<int64_t>(slots_.size()) - 1;
}

Words RandomProgram::slots(const Words& classes) {
  Words out;
  for (int64_t c : classes) out.push_back(slot(c));
  return out;
}

Words RandomProgram::classes(int64_t least, int64_t most) {
  Words out;
  for (int64_t n = pick(least, most); n > 0; --n) out.push_back(pick(0, spec_.classes - 1));
  return out;
}

int64_t RandomProgram::pick(int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random_);
}

Job random_forest(uint32_t seed, int num_roots, int num_nodes) {
  std::mt19937 random(seed);
  Job job;
  job.words = tree_program().encode();
  job.outers.resize(2);
  // Node i joins two earlier nodes that have no parent yet, or is a leaf.
  std::vector<int32_t> free;
  for (int32_t i = 0; i < num_nodes; ++i) {
    const bool leaf = static_cast<int>(free.size()) < num_roots + 1 || random() % 2 == 0;
    for (auto& side : job.outers) {
      side.push_back(leaf ? -1 : free[random() % free.size()]);
      if (!leaf) free.erase(std::find(free.begin(), free.end(), side.back()));
    }
    free.push_back(i);
  }
  for (int i = 0; i < num_roots; ++i) job.roots.push_back(free[i]);
  return job;
}

}  // namespace jaxrec
