// Words to Program.
#include <algorithm>
#include <limits>
#include <string>

#include "core/program.h"
#include "core/reader.h"

namespace jaxrec {
namespace {

constexpr int64_t kMaxClasses = 1 << 16;

class Decoder {
 public:
  Decoder(Span<const int64_t> words, Program& program) : in_(words), program_(program) {}

  Status run() {
    header();
    for (int32_t n = in_.count("the number of functions"), i = 0; i < n && in_.ok(); ++i)
      program_.functions.emplace_back();
    if (in_.ok() && program_.functions.empty()) in_.fail("it has no functions");
    program_.entry =
        in_.below(static_cast<int64_t>(program_.functions.size()), "the entry function");
    for (Function& function : program_.functions) signature(function);
    if (in_.ok() && in_.left() != 0) in_.fail("words are left over at its end");
    for (size_t i = 0; i < program_.functions.size() && in_.ok(); ++i) code(i);
    if (!in_.ok()) return in_.status();
    for (size_t i = 0; i < program_.functions.size(); ++i)
      if (Status status = check_flow(program_, static_cast<int32_t>(i)); !status.ok())
        return status;
    return {};
  }

 private:
  void header() {
    if (in_.word() != kMagic || in_.word() != kVersion) in_.fail("wrong magic number or version");
    for (int32_t n = in_.count("the number of outer arrays"), i = 0; i < n && in_.ok(); ++i) {
      const DType dtype = in_.dtype();
      program_.outers.push_back({dtype, in_.below(1 << 10, "a rank")});
    }
    program_.num_classes = in_.below(kMaxClasses, "the number of classes");
    for (int32_t n = in_.count("the number of cells"), i = 0; i < n && in_.ok(); ++i) {
      Cell& cell = program_.cells.emplace_back();
      classes(cell.inputs);
      classes(cell.outputs);
      dtypes(cell.exports);
    }
    for (int32_t n = in_.count("the number of imports"), i = 0; i < n && in_.ok(); ++i) {
      const int32_t value_class = in_.below(program_.num_classes, "an imported class");
      program_.imports.push_back({value_class, in_.dtype()});
    }
  }

  void classes(std::vector<int32_t>& out) {
    const int32_t n = in_.count("a number of values");
    out.reserve(n);
    for (int32_t i = 0; i < n && in_.ok(); ++i)
      out.push_back(in_.below(program_.num_classes, "a class"));
  }

  void dtypes(std::vector<DType>& out) {
    const int32_t n = in_.count("a number of control values");
    out.reserve(n);
    for (int32_t i = 0; i < n && in_.ok(); ++i) out.push_back(in_.dtype());
  }

  // Calls name functions that come later, so all signatures are read before any code.
  void signature(Function& function) {
    function.memo = in_.below(2, "whether a function is shared") == 1;
    dtypes(function.control);
    classes(function.data);
    classes(function.results);
    if (in_.ok() && function.memo && !function.data.empty())
      in_.fail("a function that is shared has data arguments");
    // Bounded by the program's size: a bare number must not make us allocate without end.
    const int64_t most = static_cast<int64_t>(in_.left() + in_.at()) + 1;
    function.num_registers = in_.below(most, "the number of registers");
    function.num_slots = in_.below(most, "the number of slots");
    if (function.num_registers < static_cast<int64_t>(function.control.size()) ||
        function.num_slots < static_cast<int64_t>(function.data.size()))
      in_.fail("a function has fewer registers or slots than arguments");
    const int32_t num_words = in_.count("the length of a function's code");
    spans_.push_back({in_.at(), in_.at() + num_words});
    in_.seek(in_.ok() ? in_.at() + num_words : in_.at());
  }

  void code(size_t index) {
    const auto [begin, end] = spans_[index];
    function_ = &program_.functions[index];
    begin_ = begin;
    end_ = end;
    instr_of_word_.assign(end - begin, -1);
    in_.seek(begin);
    function_->code_begin = static_cast<int32_t>(program_.code.size());
    while (in_.ok() && in_.at() < end) {
      instr_of_word_[in_.at() - begin] = static_cast<int32_t>(program_.code.size());
      instruction();
      if (in_.ok() && in_.at() > end) in_.fail("an instruction runs over its function's end");
    }
    function_->code_end = static_cast<int32_t>(program_.code.size());
    if (in_.ok()) link();
  }

  void instruction() {
    const Op op = static_cast<Op>(in_.below(kNumOps, "an opcode"));
    Instr instr;
    if (is_unary(op)) {
      unary(op, instr);
    } else if (is_binary(op)) {
      binary(op, instr);
    } else {
      other(op, instr);
    }
    program_.code.push_back(instr);
  }

  void unary(Op op, Instr& instr) {
    instr.kind = Kind::kUnary;
    instr.dst = reg();
    instr.unary = unary_op(op, in_.dtype());
    instr.a = reg();
    if (instr.unary == nullptr) wrong_type(op);
  }

  void binary(Op op, Instr& instr) {
    instr.kind = Kind::kBinary;
    instr.dst = reg();
    instr.binary = binary_op(op, in_.dtype());
    instr.a = reg();
    instr.b = reg();
    if (instr.binary == nullptr) wrong_type(op);
  }

  void wrong_type(Op op) {
    in_.fail(std::string(kOpNames[static_cast<int>(op)]) + " does not take this element type");
  }

  void other(Op op, Instr& instr) {
    switch (op) {
      case Op::CONST: return constant(instr);
      case Op::CONVERT: return convert(instr);
      case Op::SELECT: return select(instr);
      case Op::LOAD: return load(instr);
      case Op::SWITCH: return switch_(instr);
      case Op::JUMP: return jump(instr);
      case Op::CALL: return call(instr);
      case Op::FIRE: return fire(instr);
      case Op::ALIAS: return alias(instr);
      case Op::IMPORT: return import(instr);
      case Op::RETURN: return return_(instr);
      default: in_.fail(std::string(kOpNames[static_cast<int>(op)]) + " is for native programs");
    }
  }

  void constant(Instr& instr) {
    instr.kind = Kind::kConst;
    instr.dst = reg();
    const DType dtype = in_.dtype();
    // Through its own type: the register then stands in that type's one form.
    instr.imm = convert_op(dtype, dtype)(in_.word());
  }

  void convert(Instr& instr) {
    instr.kind = Kind::kUnary;
    instr.dst = reg();
    const DType to = in_.dtype();
    instr.unary = convert_op(to, in_.dtype());
    instr.a = reg();
  }

  void select(Instr& instr) {
    instr.kind = Kind::kSelect;
    instr.dst = reg();
    in_.dtype();
    instr.a = reg();
    instr.b = reg();
    instr.c = reg();
  }

  void load(Instr& instr) {
    instr.kind = Kind::kLoad;
    instr.dst = reg();
    instr.a = in_.below(static_cast<int64_t>(program_.outers.size()), "an outer array");
    const int32_t n = in_.count("a number of indices");
    if (in_.ok() && n != program_.outers[instr.a].rank)
      in_.fail("LOAD has " + std::to_string(n) + " indices for an array of rank " +
               std::to_string(program_.outers[instr.a].rank));
    instr.b = regs(n);
  }

  void switch_(Instr& instr) {
    instr.kind = Kind::kSwitch;
    instr.a = reg();
    instr.b = in_.count("a number of branches");
    if (in_.ok() && instr.b == 0) in_.fail("SWITCH has no branches");
    instr.c = static_cast<int32_t>(program_.pool.size());
    for (int32_t i = 0; i < instr.b && in_.ok(); ++i) program_.pool.push_back(target());
  }

  void jump(Instr& instr) {
    instr.kind = Kind::kJump;
    instr.a = target();
  }

  void call(Instr& instr) {
    instr.kind = Kind::kCall;
    instr.a = in_.below(static_cast<int64_t>(program_.functions.size()), "a callee");
    instr.b = in_.below(std::numeric_limits<int32_t>::max(), "a call site");
    if (!in_.ok()) return;
    const Function& callee = program_.functions[instr.a];
    instr.c = regs(in_.exactly(callee.control.size(), "CALL control arguments"));
    slots(in_.exactly(callee.data.size(), "CALL data arguments"));
    slots(in_.exactly(callee.results.size(), "CALL results"));
  }

  void fire(Instr& instr) {
    instr.kind = Kind::kFire;
    instr.a = in_.below(static_cast<int64_t>(program_.cells.size()), "a cell");
    if (!in_.ok()) return;
    const Cell& cell = program_.cells[instr.a];
    instr.c = regs(in_.exactly(cell.exports.size(), "FIRE exports"));
    slots(in_.exactly(cell.inputs.size(), "FIRE inputs"));
    slots(in_.exactly(cell.outputs.size(), "FIRE outputs"));
  }

  void alias(Instr& instr) {
    instr.kind = Kind::kAlias;
    instr.dst = slot();
    instr.a = slot();
  }

  void import(Instr& instr) {
    instr.kind = Kind::kImport;
    instr.dst = reg();
    instr.a = slot();
    instr.b = in_.below(static_cast<int64_t>(program_.imports.size()), "an import");
  }

  void return_(Instr& instr) {
    instr.kind = Kind::kReturn;
    instr.c = slots(in_.exactly(function_->results.size(), "RETURN results"));
  }

  int32_t reg() { return in_.below(function_->num_registers, "a register"); }
  int32_t slot() { return in_.below(function_->num_slots, "a slot"); }

  int32_t regs(int32_t n) {
    const int32_t begin = static_cast<int32_t>(program_.pool.size());
    for (int32_t i = 0; i < n && in_.ok(); ++i) program_.pool.push_back(reg());
    return begin;
  }

  int32_t slots(int32_t n) {
    const int32_t begin = static_cast<int32_t>(program_.pool.size());
    for (int32_t i = 0; i < n && in_.ok(); ++i) program_.pool.push_back(slot());
    return begin;
  }

  // A word offset; `link` turns it into an instruction once all are known.
  int32_t target() { return in_.jump(begin_, end_); }

  void link() {
    const int32_t begin = function_->code_begin, end = function_->code_end;
    if (begin == end || program_.code[end - 1].kind != Kind::kReturn) {
      in_.fail("a function does not end with RETURN");
      return;
    }
    for (int32_t i = begin; i < end; ++i) {
      Instr& instr = program_.code[i];
      if (instr.kind == Kind::kJump) link(instr.a);
      if (instr.kind == Kind::kSwitch)
        for (int32_t k = 0; k < instr.b; ++k) link(program_.pool[instr.c + k]);
    }
  }

  void link(int32_t& target) {
    target = instr_of_word_[target];
    if (target < 0) in_.fail("a jump goes into the middle of an instruction");
  }

  struct WordRange {
    size_t begin, end;
  };

  Reader in_;
  Program& program_;
  std::vector<WordRange> spans_;        // of each function's code
  std::vector<int32_t> instr_of_word_;  // of the function being decoded; -1 inside an instruction
  Function* function_ = nullptr;
  size_t begin_ = 0, end_ = 0;
};

}  // namespace

size_t Program::max_inputs() const {
  size_t most = 0;
  for (const Cell& cell : cells) most = std::max(most, cell.inputs.size());
  return most;
}

size_t Program::max_outputs() const {
  size_t most = 0;
  for (const Cell& cell : cells) most = std::max(most, cell.outputs.size());
  return most;
}

bool Program::has_memo() const {
  return std::any_of(functions.begin(), functions.end(), [](const Function& f) { return f.memo; });
}

Status decode(Span<const int64_t> words, Program& program) {
  if (words.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    return program_error("it is too long");
  program.functions.reserve(8);
  program.code.reserve(words.size() / 4);
  program.pool.reserve(words.size() / 4);
  return Decoder(words, program).run();
}

}  // namespace jaxrec
