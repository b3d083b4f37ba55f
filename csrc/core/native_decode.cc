// From words to a program that is valid by construction: every register, pool entry, function and
// jump target that an instruction names is there.
#include <algorithm>
#include <limits>
#include <string>

#include "core/native_program.h"
#include "core/reader.h"

namespace jaxrec::native {
namespace {

constexpr int32_t kMostRegisters = 4096;  // a frame of so many is a fault of the compiler
constexpr int32_t kMostNumbered = std::numeric_limits<uint16_t>::max();  // in a field of Instr

// The instruction of an operation on a type, MachineOp::CONST if it has none of its own.
MachineOp hot_arithmetic(Op op, DType dtype, bool immediate) {
#define JAXREC_PICK(name, f, d, t)         \
  if (op == Op::name && dtype == DType::d) \
    return immediate ? MachineOp::name##_##d##_IMM : MachineOp::name##_##d;
  JAXREC_HOT_ARITHMETIC(JAXREC_PICK)
  JAXREC_HOT_COMPARE(JAXREC_PICK)
#undef JAXREC_PICK
  return MachineOp::CONST;
}

MachineOp hot_branch(Op op, DType dtype, bool immediate) {
#define JAXREC_PICK(name, f, d, t)         \
  if (op == Op::name && dtype == DType::d) \
    return immediate ? MachineOp::BRANCH_##name##_##d##_IMM : MachineOp::BRANCH_##name##_##d;
  JAXREC_HOT_COMPARE(JAXREC_PICK)
#undef JAXREC_PICK
  return MachineOp::CONST;
}

MachineOp hot_load(DType dtype) {
#define JAXREC_PICK(d, t) \
  if (dtype == DType::d) return MachineOp::LOAD1_##d;
  JAXREC_HOT_LOAD(JAXREC_PICK)
#undef JAXREC_PICK
  return MachineOp::LOAD1;
}

// In the type's one form: see arith.h.
Word canonical(DType dtype, Word bits) { return convert_op(dtype, dtype)(bits); }

class Decoder {
 public:
  Decoder(Span<const int64_t> words, Program& program) : in_(words), program_(program) {}

  Status run() {
    if (in_.word() != kMagic || in_.word() != kVersion)
      return program_error("it does not begin with the marks of a native program");
    header();
    declare_functions();
    for (size_t i = 0; i < program_.functions.size() && in_.ok(); ++i) body(i);
    if (in_.ok()) group_calls();
    for (const Function& function : program_.functions) {
      if (!in_.ok()) break;
      if (Status status = check_flow(program_, function); !status.ok()) return status;
    }
    return in_.status();
  }

 private:
  void header() {
    const int32_t outers = numbered("a number of outer arrays");
    for (int32_t i = 0; i < outers && in_.ok(); ++i) {
      const DType dtype = register_type();
      program_.outers.push_back({dtype, in_.below(64, "a rank")});
    }
    ports(program_.roots);
    ports(program_.results);
  }

  void ports(std::vector<Port>& out) {
    const int32_t n = in_.count("a number of arrays");
    for (int32_t i = 0; i < n && in_.ok(); ++i) {
      const DType dtype = register_type();
      out.push_back({dtype, in_.below(kMostRegisters, "a number of elements")});
    }
  }

  // Signatures first: calls need those of functions further on.
  void declare_functions() {
    const int32_t n = in_.count("a number of functions");
    if (in_.ok() && n == 0) in_.fail("there is no function");
    size_t results = 0;
    int32_t registers = 0;
    for (int32_t i = 0; i < n && in_.ok(); ++i) {
      Function& function = program_.functions.emplace_back();
      function.memo = in_.below(2, "a memo flag") != 0;
      program_.memo |= function.memo;
      dtypes(function.args);
      dtypes(function.results);
      function.num_registers = in_.below(kMostRegisters, "a number of registers");
      if (in_.ok() && function.args.size() > static_cast<size_t>(function.num_registers))
        in_.fail("a function has more arguments than registers");
      const int32_t length = in_.count("a number of words");
      bodies_.push_back({in_.at(), in_.at() + static_cast<size_t>(length)});
      in_.seek(bodies_.back().end);
      results = std::max(results, function.results.size());
      registers = std::max(registers, function.num_registers + function.memo);
    }
    if (in_.ok() && in_.left() != 0) in_.fail("there are words behind its end");
    if (in_.ok()) check_ports();
    program_.frame_words = 1 + std::max(registers, static_cast<int32_t>(results));
    // Where the results of a call from outside go: see Stack::enter.
    for (size_t i = 0; i < results; ++i) program_.pool.push_back(static_cast<int32_t>(i));
  }

  DType register_type() {
    const DType dtype = in_.dtype();
    program_.half_words &= byte_width(dtype) <= sizeof(int32_t);
    return dtype;
  }

  void dtypes(std::vector<DType>& out) {
    const int32_t n = numbered("a number of types");
    for (int32_t i = 0; i < n && in_.ok(); ++i) out.push_back(register_type());
  }

  // The length of a list whose items an instruction numbers.
  int32_t numbered(const char* what) {
    const int32_t n = in_.count(what);
    if (n > kMostNumbered) return in_.fail(std::string(what) + " is " + std::to_string(n));
    return n;
  }

  void check_ports() {
    if (flat(program_.roots) != program_.functions[0].args ||
        flat(program_.results) != program_.functions[0].results)
      in_.fail("the entry function does not have the invocation's types");
  }

  static std::vector<DType> flat(const std::vector<Port>& ports) {
    std::vector<DType> out;
    for (const Port& port : ports) out.insert(out.end(), port.count, port.dtype);
    return out;
  }

  void body(size_t number) {
    function_ = &program_.functions[number];
    begin_ = bodies_[number].begin;
    end_ = bodies_[number].end;
    instr_of_word_.assign(end_ - begin_, -1);
    function_->code_begin = static_cast<int32_t>(program_.code.size());
    in_.seek(begin_);
    while (in_.ok() && in_.at() < end_) {
      instr_of_word_[in_.at() - begin_] = static_cast<int32_t>(program_.code.size());
      instruction();
    }
    if (in_.ok() && in_.at() != end_) in_.fail("an instruction goes past its function's end");
    function_->code_end = static_cast<int32_t>(program_.code.size());
    if (in_.ok()) link();
  }

  void instruction() {
    Instr instr;
    call_ = -1;
    switch (static_cast<Form>(in_.below(kNumForms, "an instruction"))) {
      case Form::CONST: constant(instr); break;
      case Form::MOVE: move(instr); break;
      case Form::CONVERT: convert(instr); break;
      case Form::UNARY: unary(instr); break;
      case Form::BINARY: binary(instr, false); break;
      case Form::BINARY_IMM: binary(instr, true); break;
      case Form::SELECT: select(instr); break;
      case Form::WRAP: wrap(instr); break;
      case Form::LOAD: load(instr); break;
      case Form::BRANCH: branch(instr); break;
      case Form::COMPARE: compare(instr, false); break;
      case Form::COMPARE_IMM: compare(instr, true); break;
      case Form::SWITCH: switch_(instr); break;
      case Form::JUMP: jump(instr); break;
      case Form::LOOP: loop(instr); break;
      case Form::CALL: call(instr); break;
      case Form::RETURN: return_(instr); break;
      case Form::RETURN_IMM: return_immediate(instr); break;
    }
    program_.code.push_back(instr);
    program_.call_of.push_back(call_);
  }

  static void set(Instr& instr, MachineOp op) { instr.op = static_cast<uint16_t>(op); }

  void constant(Instr& instr) {
    set(instr, MachineOp::CONST);
    instr.dst = reg();
    const DType dtype = register_type();
    instr.imm = canonical(dtype, in_.word());
  }

  void move(Instr& instr) {
    set(instr, MachineOp::MOVE);
    instr.dst = reg();
    instr.a = reg();
  }

  void convert(Instr& instr) {
    set(instr, MachineOp::UNARY);
    instr.dst = reg();
    const DType to = register_type();
    const UnaryFn apply = convert_op(to, register_type());
    instr.a = reg();
    instr.b = function_number(program_.unary, apply);
  }

  void unary(Instr& instr) {
    set(instr, MachineOp::UNARY);
    const Op op = operation();
    instr.dst = reg();
    const UnaryFn apply = unary_op(op, register_type());
    instr.a = reg();
    if (apply == nullptr) wrong_type(op);
    instr.b = function_number(program_.unary, apply);
  }

  void binary(Instr& instr, bool immediate) {
    const Op op = operation();
    instr.dst = reg();
    const DType dtype = register_type();
    instr.a = reg();
    const MachineOp hot = hot_arithmetic(op, dtype, immediate);
    if (immediate) {
      instr.imm = canonical(dtype, in_.word());
      if (hot == MachineOp::CONST) wrong_type(op);
      return set(instr, hot);
    }
    instr.b = reg();
    if (hot != MachineOp::CONST) return set(instr, hot);
    const BinaryFn apply = binary_op(op, dtype);
    if (apply == nullptr) wrong_type(op);
    set(instr, MachineOp::BINARY);
    instr.ref.x = function_number(program_.binary, apply);
  }

  template <class Fn>
  uint16_t function_number(std::vector<Fn>& known, Fn fn) {
    const size_t at = std::find(known.begin(), known.end(), fn) - known.begin();
    if (at == known.size()) known.push_back(fn);
    return static_cast<uint16_t>(at);
  }

  void select(Instr& instr) {
    set(instr, MachineOp::SELECT);
    instr.dst = reg();
    instr.a = reg();
    instr.b = reg();
    instr.ref.x = reg();
  }

  void wrap(Instr& instr) {
    instr.dst = reg();
    const DType dtype = register_type();
    instr.a = reg();
    instr.imm = canonical(dtype, in_.word());
    if (dtype == DType::kI32) set(instr, MachineOp::WRAP_kI32);
    else if (dtype == DType::kI64) set(instr, MachineOp::WRAP_kI64);
    else in_.fail("WRAP does not take this element type");
  }

  void load(Instr& instr) {
    instr.dst = reg();
    const int32_t outer = in_.below(static_cast<int64_t>(program_.outers.size()), "an outer array");
    const int32_t n = in_.count("a number of indices");
    if (!in_.ok()) return;
    const OuterType& type = program_.outers[outer];
    if (n != type.rank) {
      in_.fail("LOAD has " + std::to_string(n) + " indices for an array of rank " +
               std::to_string(type.rank));
      return;
    }
    if (n == 1) {
      set(instr, hot_load(type.dtype));
      instr.a = reg();
      instr.b = static_cast<uint16_t>(outer);
    } else {
      set(instr, n == 0 ? MachineOp::LOAD0 : MachineOp::LOADN);
      instr.a = static_cast<uint16_t>(outer);
      instr.ref.x = list(n);
    }
  }

  void branch(Instr& instr) {
    set(instr, MachineOp::BRANCH);
    instr.a = reg();
    instr.ref.target = target();
  }

  void compare(Instr& instr, bool immediate) {
    const Op op = operation();
    const DType dtype = in_.dtype();  // the comparison is the same of halves of words
    program_.half_words &= dtype != DType::kF64;
    const MachineOp hot = hot_branch(op, dtype, immediate);
    instr.a = reg();
    if (immediate) instr.ref.x = short_immediate(dtype, in_.word());
    else instr.b = reg();
    instr.ref.target = target();
    if (hot == MachineOp::CONST) wrong_type(op);
    set(instr, hot);
  }

  int32_t short_immediate(DType dtype, Word bits) {
    const Word word = canonical(dtype, bits);
    if (dtype == DType::kF64) {
      const auto narrow = static_cast<float>(from_word<double>(word));
      if (static_cast<double>(narrow) != from_word<double>(word))
        return in_.fail("an immediate is not a float32");
      return static_cast<int32_t>(to_word(narrow));
    }
    if (dtype != DType::kF32 && word != static_cast<int32_t>(word))
      return in_.fail("an immediate is not an int32");
    return static_cast<int32_t>(word);
  }

  void switch_(Instr& instr) {
    set(instr, MachineOp::SWITCH);
    instr.a = reg();
    const int32_t n = in_.count("a number of branches");
    if (in_.ok() && (n == 0 || n > kMostRegisters)) in_.fail("SWITCH has too few or many branches");
    instr.b = static_cast<uint16_t>(n);
    instr.ref.x = static_cast<int32_t>(program_.pool.size());
    for (int32_t i = 0; i < n && in_.ok(); ++i) program_.pool.push_back(target());
  }

  void jump(Instr& instr) {
    set(instr, MachineOp::JUMP);
    instr.ref.target = target();
  }

  void loop(Instr& instr) {
    set(instr, MachineOp::LOOP);
    const int64_t here = static_cast<int64_t>(in_.at() - begin_);
    instr.ref.target = in_.below(static_cast<int64_t>(end_ - begin_), "a jump target");
    if (in_.ok() && instr.ref.target >= here) in_.fail("a loop goes forward");
  }

  // In the pool: registers of the results, then of the arguments.
  void call(Instr& instr) {
    const int32_t callee = in_.below(static_cast<int64_t>(program_.functions.size()), "a callee");
    const int32_t site = in_.below(std::numeric_limits<int32_t>::max(), "a call site");
    if (!in_.ok()) return;
    const Function& function = program_.functions[callee];
    const int32_t num_args = in_.exactly(function.args.size(), "CALL arguments");
    std::vector<int32_t> args;
    for (int32_t i = 0; i < num_args && in_.ok(); ++i) args.push_back(reg());
    const int32_t num_results = in_.exactly(function.results.size(), "CALL results");
    const int32_t results = list(num_results);
    if (!in_.ok()) return;
    const int32_t first = static_cast<int32_t>(program_.pool.size());
    program_.pool.insert(program_.pool.end(), args.begin(), args.end());
    call_ = static_cast<int32_t>(program_.calls.size());
    program_.calls.push_back({callee, site, 0, first, results});
    instr.ref.target = callee;  // its first instruction, once that is known: see group_calls
    if (num_results == 1) instr.dst = static_cast<uint16_t>(program_.pool[results]);
    const bool few = num_results == 1 && num_args >= 1 && num_args <= 3 && !function.memo;
    if (!few) {
      set(instr, function.memo ? MachineOp::CALL_MEMO : MachineOp::CALLN);
      instr.a = static_cast<uint16_t>(num_args);
      instr.b = static_cast<uint16_t>(num_results);
      instr.ref.x = results;
      return;
    }
    constexpr MachineOp kCalls[] = {MachineOp::CALL1, MachineOp::CALL2, MachineOp::CALL3};
    set(instr, kCalls[num_args - 1]);
    instr.a = static_cast<uint16_t>(args[0]);
    if (num_args > 1) instr.b = static_cast<uint16_t>(args[1]);
    if (num_args > 2) instr.ref.x = args[2];
  }

  void return_(Instr& instr) {
    const int32_t n = in_.exactly(function_->results.size(), "RETURN registers");
    if (n == 1 && !function_->memo) {
      set(instr, MachineOp::RET1);
      instr.a = reg();
      return;
    }
    set(instr, function_->memo ? MachineOp::RET_MEMO : MachineOp::RETN);
    instr.a = static_cast<uint16_t>(n);
    instr.ref.x = list(n);
  }

  void return_immediate(Instr& instr) {
    set(instr, MachineOp::RET_IMM);
    const DType dtype = register_type();
    instr.imm = canonical(dtype, in_.word());
    if (in_.ok() && (function_->results.size() != 1 || function_->memo))
      in_.fail("RETURN_IMM in a function without exactly one result");
  }

  void wrong_type(Op op) {
    if (in_.ok())
      in_.fail(std::string(kOpNames[static_cast<int>(op)]) + " does not take this element type");
  }

  Op operation() { return static_cast<Op>(in_.below(kNumOps, "an operation")); }

  uint16_t reg() {
    return static_cast<uint16_t>(in_.below(function_->num_registers, "a register"));
  }

  int32_t list(int32_t n) {
    const int32_t begin = static_cast<int32_t>(program_.pool.size());
    for (int32_t i = 0; i < n && in_.ok(); ++i) program_.pool.push_back(reg());
    return begin;
  }

  // A word offset; `link` turns it into a distance once all instructions are known.
  int32_t target() { return in_.jump(begin_, end_); }

  void link() {
    const int32_t begin = function_->code_begin, end = function_->code_end;
    if (begin == end || !leaves(static_cast<MachineOp>(program_.code[end - 1].op))) {
      in_.fail("a function does not end with RETURN");
      return;
    }
    for (int32_t at = begin; at < end; ++at) {
      Instr& instr = program_.code[at];
      const auto op = static_cast<MachineOp>(instr.op);
      if (is_compare_branch(op) || op == MachineOp::BRANCH || op == MachineOp::JUMP ||
          op == MachineOp::LOOP)
        link(at, instr.ref.target);
      if (op == MachineOp::SWITCH)
        for (int32_t k = 0; k < instr.b; ++k) link(at, program_.pool[instr.ref.x + k]);
    }
  }

  void link(int32_t at, int32_t& target) {
    const int32_t instr = instr_of_word_[target];
    if (instr < 0) in_.fail("a jump goes into the middle of an instruction");
    target = instr - at;
  }

  // Callees' addresses, and runs of calls of which none reads what another one writes. A jump into
  // the middle of a run does no harm: only what comes behind a call that runs is given away.
  void group_calls() {
    for (size_t i = program_.code.size(); i-- > 0;) {
      if (program_.call_of[i] < 0) continue;
      CallSite& call = program_.calls[program_.call_of[i]];
      program_.code[i].ref.target = program_.functions[call.callee].code_begin;
      const bool is_followed = i + 1 < program_.code.size() && program_.call_of[i + 1] >= 0;
      const int32_t most = is_followed ? 1 + program_.calls[program_.call_of[i + 1]].rest : 0;
      call.rest = 0;
      while (call.rest < most && !reads(i + call.rest + 1, call)) ++call.rest;
    }
  }

  // Whether the call at `at` needs a result of an earlier one.
  bool reads(size_t at, const CallSite& earlier) const {
    const CallSite& call = program_.calls[program_.call_of[at]];
    const int32_t* args = program_.pool.data() + call.args;
    const int32_t* results = program_.pool.data() + earlier.results;
    const size_t num_args = program_.functions[call.callee].args.size();
    const size_t num_results = program_.functions[earlier.callee].results.size();
    return std::find_first_of(args, args + num_args, results, results + num_results) !=
           args + num_args;
  }

  struct WordRange {
    size_t begin, end;
  };

  Reader in_;
  Program& program_;
  std::vector<WordRange> bodies_;
  std::vector<int32_t> instr_of_word_;  // of the function being decoded; -1 inside an instruction
  Function* function_ = nullptr;
  size_t begin_ = 0, end_ = 0;
  int32_t call_ = -1;  // of the instruction being decoded
};

}  // namespace

Status decode(Span<const int64_t> words, Program& program) {
  if (words.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    return program_error("it is too long");
  return Decoder(words, program).run();
}

}  // namespace jaxrec::native
