// Writing control programs by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "core/dtype.h"
#include "core/opcode.h"

namespace jaxrec {

using Words = std::vector<int64_t>;

inline constexpr int64_t kInt = static_cast<int64_t>(DType::kI32);

/// A list as the encoding has it: its length, then its items.
void put(Words& words, const Words& items);

/// The code of a function. Lists are written with `list`; targets are offsets: see `here`.
class Assembler {
 public:
  Assembler& op(Op op, std::initializer_list<int64_t> operands = {});
  Assembler& list(const Words& items);
  int64_t here() const { return static_cast<int64_t>(words.size()); }

  Assembler& constant(int64_t dst, int64_t value) { return op(Op::CONST, {dst, kInt, value}); }
  Assembler& fire(int64_t cell, const Words& exports, const Words& inputs, const Words& outputs);
  Assembler& call(int64_t callee, int64_t site, const Words& control, const Words& data,
                  const Words& results);
  Assembler& ret(const Words& slots) { return op(Op::RETURN).list(slots); }
  /// A SWITCH on `reg`; its targets are set with `land`.
  int64_t branch(int64_t reg, int64_t n);
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

  Words encode() const;
};

/// tree(i): left[i] < 0 ? leaf(i) : compose(tree(left[i]), tree(right[i])), over two outer arrays.
ProgramSpec tree_program();

/// chain(n, x): n == 0 ? x : chain(n - 1, x), with a firing on x on the way down if asked for.
ProgramSpec chain_program(bool fires);

}  // namespace jaxrec
