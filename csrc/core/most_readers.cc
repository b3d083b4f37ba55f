#include "core/most_readers.h"

#include <algorithm>
#include <utility>

namespace jaxrec {
namespace {

using Counts = std::vector<int32_t>;  // up to kMany

void raise(int32_t& count, int32_t to) { count = std::max(count, to); }

// Counts grow until they agree with each other: what is read of a value when a frame has it in a
// slot depends on what callees read of their arguments, and callers of results.
class Search {
 public:
  Search(const Program& program, bool collect) : program_(program), collect_(collect) {
    for (const Cell& cell : program.cells) outputs_.emplace_back(cell.outputs.size());
    for (const Function& function : program.functions) {
      arguments_.emplace_back(function.data.size());
      results_.emplace_back(function.results.size());
    }
    results_[program.entry].assign(results_[program.entry].size(), 1);
  }

  MostReaders run() {
    for (std::vector<Counts> before; before != state();) {
      before = state();
      for (size_t i = 0; i < program_.functions.size(); ++i) visit(i);
    }
    return {outputs_, arguments_[program_.entry]};
  }

 private:
  std::vector<Counts> state() const {
    std::vector<Counts> all = outputs_;
    all.insert(all.end(), arguments_.begin(), arguments_.end());
    all.insert(all.end(), results_.begin(), results_.end());
    return all;
  }

  static void add(int32_t& count, int32_t more) {
    count = std::min(count + more, MostReaders::kMany);
  }

  // From the end to the beginning: jumps only go forward.
  void visit(size_t number) {
    const Function& function = program_.functions[number];
    std::vector<Counts> at(function.code_end - function.code_begin);
    for (int32_t i = function.code_end; i-- > function.code_begin;) {
      const Instr& in = program_.code[i];
      Counts reads(function.num_slots, 0);
      const auto join = [&](int32_t target) {
        const Counts& other = at[target - function.code_begin];
        for (size_t k = 0; k < reads.size(); ++k) raise(reads[k], other[k]);
      };
      if (in.kind == Kind::kSwitch)
        for (int32_t k = 0; k < in.b; ++k) join(program_.pool[in.c + k]);
      else if (in.kind == Kind::kJump) join(in.a);
      else if (in.kind != Kind::kReturn) join(i + 1);
      step(in, number, reads);
      at[i - function.code_begin] = std::move(reads);
    }
    if (at.empty()) return;
    for (size_t k = 0; k < function.data.size(); ++k) raise(arguments_[number][k], at[0][k]);
  }

  // From what is read after an instruction to what is read from it on.
  void step(const Instr& in, size_t number, Counts& reads) {
    const int32_t* operands = program_.pool.data() + in.c;
    switch (in.kind) {
      case Kind::kAlias: add(reads[in.a], take(reads[in.dst])); break;
      case Kind::kFire: fire(in.a, operands, reads); break;
      case Kind::kCall: call(in.a, operands, reads); break;
      case Kind::kReturn:
        for (size_t k = 0; k < results_[number].size(); ++k) {
          const bool reported = collect_ && static_cast<int32_t>(number) == program_.entry;
          add(reads[operands[k]], results_[number][k] + (reported ? 1 : 0));
        }
        break;
      default: break;
    }
  }

  // What is read of a slot that an instruction writes: nothing before it.
  static int32_t take(int32_t& count) { return std::exchange(count, 0); }

  void fire(int32_t number, const int32_t* operands, Counts& reads) {
    const Cell& cell = program_.cells[number];
    const int32_t* inputs = operands + cell.exports.size();
    for (size_t k = 0; k < cell.outputs.size(); ++k)
      raise(outputs_[number][k], take(reads[inputs[cell.inputs.size() + k]]));
    for (size_t k = 0; k < cell.inputs.size(); ++k) add(reads[inputs[k]], 1);
  }

  void call(int32_t number, const int32_t* operands, Counts& reads) {
    const Function& callee = program_.functions[number];
    const int32_t* data = operands + callee.control.size();
    for (size_t k = 0; k < callee.results.size(); ++k) {
      const int32_t count = take(reads[data[callee.data.size() + k]]);
      raise(results_[number][k], callee.memo && count > 0 ? MostReaders::kMany : count);
    }
    for (size_t k = 0; k < callee.data.size(); ++k) add(reads[data[k]], arguments_[number][k]);
  }

  const Program& program_;
  const bool collect_;
  std::vector<Counts> outputs_;              // of each cell
  std::vector<Counts> arguments_, results_;  // of each function
};

}  // namespace

MostReaders most_readers(const Program& program, bool collect) {
  return Search(program, collect).run();
}

}  // namespace jaxrec
