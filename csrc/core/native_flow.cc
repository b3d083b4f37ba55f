// Definite assignment: every register is written before it is read, on every path.
//
// One pass in code order sees every predecessor of an instruction before the instruction itself,
// but for loops: these come back with at least what was written where they begin, or are refused.
#include <string>
#include <unordered_map>

#include "core/arrivals.h"
#include "core/native_program.h"

namespace jaxrec::native {
namespace {

constexpr int32_t kUnset = Arrivals::kUnknown;
constexpr int32_t kSet = 0;

class FlowCheck {
 public:
  FlowCheck(const Program& program, const Function& function)
      : program_(program),
        function_(function),
        known_(function.code_end - function.code_begin, function.num_registers) {
    for (int32_t at = function.code_begin; at < function.code_end; ++at) {
      const Instr& in = program.code[at];
      if (static_cast<MachineOp>(in.op) == MachineOp::LOOP) begun_[at + in.ref.target] = {};
    }
    for (size_t i = 0; i < function.args.size(); ++i) write(static_cast<int32_t>(i));
  }

  Status run() {
    for (at_ = function_.code_begin; at_ < function_.code_end && fault_.empty(); ++at_) {
      if (!known_.enter(at_ - function_.code_begin)) continue;
      const auto begun = begun_.find(at_);
      if (begun != begun_.end()) begun->second = known_.state();
      step(program_.code[at_]);
    }
    return fault_.empty() ? Status{} : program_error(fault_);
  }

 private:
  void send(int32_t distance) { known_.send(at_ + distance - function_.code_begin); }

  void step(const Instr& in) {
    const auto op = static_cast<MachineOp>(in.op);
    if (is_compare_branch(op)) {
      read(in.a);
      if (!has_immediate(op)) read(in.b);
      return send(in.ref.target);
    }
    if (is_arithmetic(op)) {
      read(in.a);
      if (!has_immediate(op)) read(in.b);
      return write(in.dst);
    }
    if (is_vector_load(op)) return read(in.a), write(in.dst);
    plain(op, in);
  }

  void plain(MachineOp op, const Instr& in) {
    switch (op) {
      case MachineOp::CONST:
      case MachineOp::LOAD0: return write(in.dst);
      case MachineOp::BINARY: return read(in.a), read(in.b), write(in.dst);
      case MachineOp::SELECT: return read(in.a), read(in.b), read(in.ref.x), write(in.dst);
      case MachineOp::LOADN: return read_list(in.ref.x, program_.outers[in.a].rank), write(in.dst);
      case MachineOp::BRANCH: return read(in.a), send(in.ref.target);
      case MachineOp::JUMP: return send(in.ref.target), leave();
      case MachineOp::LOOP: return come_back(begun_.at(at_ + in.ref.target)), leave();
      case MachineOp::SWITCH:
        read(in.a);
        for (int32_t i = 0; i < in.b; ++i) send(program_.pool[in.ref.x + i]);
        return leave();
      case MachineOp::RET1: return read(in.a), leave();
      case MachineOp::RET_IMM: return leave();
      case MachineOp::RETN:
      case MachineOp::RET_MEMO: return read_list(in.ref.x, in.a), leave();
      case MachineOp::CALL1:
      case MachineOp::CALL2:
      case MachineOp::CALL3:
      case MachineOp::CALLN:
      case MachineOp::CALL_MEMO: return call(program_.calls[program_.call_of[at_]]);
      default: return read(in.a), write(in.dst);  // MOVE, UNARY, WRAP
    }
  }

  void call(const CallSite& call) {
    const Function& callee = program_.functions[call.callee];
    read_list(call.args, static_cast<int32_t>(callee.args.size()));
    for (size_t i = 0; i < callee.results.size(); ++i) write(program_.pool[call.results + i]);
  }

  void come_back(const Arrivals::State& begun) {
    bool holds = !begun.empty();
    for (size_t i = 0; i < begun.size(); ++i)
      holds &= begun[i] == kUnset || known_.state()[i] != kUnset;
    if (!holds) fault_ = "a loop comes back with less than it began with";
  }

  void read(int32_t reg) {
    if (known_[reg] == kUnset)
      fault_ = "register " + std::to_string(reg) + " is read before it is written";
  }
  void read_list(int32_t first, int32_t n) {
    for (int32_t i = 0; i < n; ++i) read(program_.pool[first + i]);
  }
  void write(int32_t reg) { known_[reg] = kSet; }
  void leave() { known_.leave(); }

  const Program& program_;
  const Function& function_;
  Arrivals known_;                                      // registers
  std::unordered_map<int32_t, Arrivals::State> begun_;  // where loops begin; empty: not reached
  std::string fault_;
  int32_t at_ = 0;
};

}  // namespace

Status check_flow(const Program& program, const Function& function) {
  return FlowCheck(program, function).run();
}

}  // namespace jaxrec::native
