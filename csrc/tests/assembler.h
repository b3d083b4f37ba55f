// Writing control programs by hand, and calling the scheduler on them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "core/fill.h"
#include "core/opcode.h"
#include "core/plan.h"
#include "core/stepper.h"

namespace jaxrec {

using Words = std::vector<int64_t>;

inline constexpr int64_t kInt = static_cast<int64_t>(DType::kI32);

/// A list as the encoding has it: its length, then its items.
inline void put(Words& words, const Words& items) {
  words.push_back(static_cast<int64_t>(items.size()));
  words.insert(words.end(), items.begin(), items.end());
}

/// The code of a function. Lists are written with `list`; targets are offsets: see `here`.
class Assembler {
 public:
  Assembler& op(Op op, std::initializer_list<int64_t> operands = {}) {
    words.push_back(static_cast<int64_t>(op));
    words.insert(words.end(), operands);
    return *this;
  }
  Assembler& list(const Words& items) {
    put(words, items);
    return *this;
  }
  int64_t here() const { return static_cast<int64_t>(words.size()); }

  Assembler& constant(int64_t dst, int64_t value) { return op(Op::CONST, {dst, kInt, value}); }
  Assembler& fire(int64_t cell, const Words& exports, const Words& inputs, const Words& outputs) {
    return op(Op::FIRE, {cell}).list(exports).list(inputs).list(outputs);
  }
  Assembler& call(int64_t callee, int64_t site, const Words& control, const Words& data,
                  const Words& results) {
    return op(Op::CALL, {callee, site}).list(control).list(data).list(results);
  }
  Assembler& ret(const Words& slots) { return op(Op::RETURN).list(slots); }
  /// A SWITCH on `reg`; its targets are set with `land`.
  int64_t branch(int64_t reg, int64_t n) {
    op(Op::SWITCH, {reg, n});
    words.insert(words.end(), n, 0);
    return here() - n;
  }
  void land(int64_t place) { words[place] = here(); }

  Words words;
};

struct CellSpec {
  Words inputs, outputs, exports;
};
struct FunctionSpec {
  Words control, data, results;
  int64_t registers, slots;
  Words code;
  bool memo = false;
};
struct ProgramSpec {
  std::vector<Words> outers;  // (type, rank) each
  int64_t classes;
  std::vector<CellSpec> cells;
  std::vector<FunctionSpec> functions;
  std::vector<Words> imports = {};  // (class, type) each

  Words encode() const {
    Words out = {kMagic, kVersion, static_cast<int64_t>(outers.size())};
    for (const Words& outer : outers) out.insert(out.end(), outer.begin(), outer.end());
    out.insert(out.end(), {classes, static_cast<int64_t>(cells.size())});
    for (const CellSpec& cell : cells)
      for (const Words* list : {&cell.inputs, &cell.outputs, &cell.exports}) put(out, *list);
    out.push_back(static_cast<int64_t>(imports.size()));
    for (const Words& import : imports) out.insert(out.end(), import.begin(), import.end());
    out.insert(out.end(), {static_cast<int64_t>(functions.size()), 0});
    for (const FunctionSpec& f : functions) {
      out.push_back(f.memo);
      for (const Words* list : {&f.control, &f.data, &f.results}) put(out, *list);
      out.insert(out.end(), {f.registers, f.slots});
      put(out, f.code);
    }
    return out;
  }
};

/// One call of `plan`, with the memory it reads: int32 roots and int32 vectors as outer arrays.
struct Job {
  Words words;
  std::vector<int32_t> roots;       // the entry function's first control argument, by lane
  std::vector<int32_t> more_roots;  // and its second, if it has one
  std::vector<std::vector<int32_t>> outers;
  Words widths = {4, 16};
  std::vector<double> costs = {1.0, 2.0};
  std::string names;
  int64_t max_calls = -1;
  int64_t call_limit = -1;
  int64_t depth_limit = -1;
  bool collect = false;

  Status run(int64_t workers, Schedule& out) { return plan(request(workers), out); }

  Status start(std::unique_ptr<Stepper>& out, const Room& room = {}) {
    return Stepper::start(request(1), room, out);
  }

  /// A view of this job.
  Request request(int64_t workers) {
    dims_.assign(2 + outers.size(), 0);
    lanes_.clear();
    Request request;
    request.program = words;
    request.roots = {view(roots, 0)};
    if (!more_roots.empty()) request.roots.push_back(view(more_roots, 1));
    for (size_t i = 0; i < outers.size(); ++i) {
      request.outers.push_back(view(outers[i], 2 + i));
      lanes_.insert(lanes_.end(), {0, -1});
    }
    request.outer_lanes = lanes_;
    request.lanes = static_cast<int64_t>(roots.size());
    request.widths = widths;
    request.costs = costs;
    request.names = names;
    request.max_calls = max_calls;
    request.call_limit = call_limit;
    request.depth_limit = depth_limit;
    request.collect = collect;
    request.workers = workers;
    return request;
  }

 private:
  Array view(std::vector<int32_t>& data, size_t at) {
    dims_[at] = static_cast<int64_t>(data.size());
    return {data.data(), DType::kI32, {&dims_[at], 1}};
  }

  std::vector<int64_t> dims_;
  Words lanes_;
};

/// tree(i): left[i] < 0 ? leaf(i) : compose(tree(left[i]), tree(right[i])), over two outer arrays.
inline ProgramSpec tree_program() {
  Assembler code;
  code.op(Op::LOAD, {1, 0}).list({0});
  code.constant(2, 0).op(Op::LT, {3, kInt, 1, 2});
  const int64_t branches = code.branch(3, 2);
  code.land(branches);
  code.op(Op::LOAD, {4, 1}).list({0});
  code.call(0, 0, {1}, {}, {0}).call(0, 1, {4}, {}, {1}).fire(1, {}, {0, 1}, {2}).ret({2});
  code.land(branches + 1);
  code.fire(0, {0}, {}, {0}).ret({0});
  return {{{kInt, 1}, {kInt, 1}},
          1,
          {{{}, {0}, {kInt}}, {{0, 0}, {0}, {}}},
          {{{kInt}, {}, {0}, 5, 3, code.words}}};
}

/// chain(n, x): n == 0 ? x : chain(n - 1, x), with a firing on x on the way down if asked for.
inline ProgramSpec chain_program(bool fires) {
  Assembler code;
  const int64_t branches = code.branch(0, 2);
  code.land(branches);
  code.ret({0});
  code.land(branches + 1);
  code.constant(1, 1).op(Op::SUB, {2, kInt, 0, 1});
  if (fires) code.fire(0, {}, {0}, {1});
  else code.op(Op::ALIAS, {1, 0});
  code.call(0, 0, {2}, {1}, {2}).ret({2});
  return {{}, 1, {{{0}, {0}, {}}}, {{{kInt}, {0}, {0}, 3, 3, code.words}}};
}

}  // namespace jaxrec
