// The encoding of control programs, and the programs that several tests run.
#include "tests/assembler.h"

namespace jaxrec {

void put(Words& words, const Words& items) {
  words.push_back(static_cast<int64_t>(items.size()));
  words.insert(words.end(), items.begin(), items.end());
}

Assembler& Assembler::op(Op op, std::initializer_list<int64_t> operands) {
  words.push_back(static_cast<int64_t>(op));
  words.insert(words.end(), operands);
  return *this;
}

Assembler& Assembler::list(const Words& items) {
  put(words, items);
  return *this;
}

Assembler& Assembler::fire(int64_t cell, const Words& exports, const Words& inputs,
                           const Words& outputs) {
  return op(Op::FIRE, {cell}).list(exports).list(inputs).list(outputs);
}

Assembler& Assembler::call(int64_t callee, int64_t site, const Words& control, const Words& data,
                           const Words& results) {
  return op(Op::CALL, {callee, site}).list(control).list(data).list(results);
}

int64_t Assembler::branch(int64_t reg, int64_t n) {
  op(Op::SWITCH, {reg, n});
  words.insert(words.end(), n, 0);
  return here() - n;
}

Words ProgramSpec::encode() const {
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

ProgramSpec tree_program() {
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

ProgramSpec chain_program(bool fires) {
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
