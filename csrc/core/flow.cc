// The second half of validation: definite assignment of registers and slots, and slot classes.
//
// Jumps only go forward, so one pass in code order sees every predecessor of an instruction before
// the instruction itself: no fixpoint.
#include <string>

#include "core/arrivals.h"
#include "core/program.h"

namespace jaxrec {
namespace {

// Per register: kUnset or kSet. Per slot: kUnset or its class.
constexpr int32_t kUnset = Arrivals::kUnknown;
constexpr int32_t kSet = 0;

class FlowCheck {
 public:
  FlowCheck(const Program& program, const Function& function)
      : program_(program),
        function_(function),
        known_(function.code_end - function.code_begin,
               function.num_registers + function.num_slots) {
    for (size_t i = 0; i < function.control.size(); ++i) set(static_cast<int32_t>(i));
    for (size_t i = 0; i < function.data.size(); ++i)
      slot(static_cast<int32_t>(i)) = function.data[i];
  }

  Status run() {
    for (int32_t at = function_.code_begin; at < function_.code_end && fault_.empty(); ++at)
      if (known_.enter(at - function_.code_begin)) step(program_.code[at]);
    return fault_.empty() ? Status{} : program_error(fault_);
  }

 private:
  int32_t& slot(int32_t i) { return known_[function_.num_registers + i]; }

  void send(int32_t target) { known_.send(target - function_.code_begin); }

  void step(const Instr& in) {
    const int32_t* pool = program_.pool.data();
    switch (in.kind) {
      case Kind::kConst: return set(in.dst);
      case Kind::kUnary: return read(in.a), set(in.dst);
      case Kind::kBinary: return read(in.a), read(in.b), set(in.dst);
      case Kind::kSelect: return read(in.a), read(in.b), read(in.c), set(in.dst);
      case Kind::kLoad: return read_all(pool + in.b, program_.outers[in.a].rank), set(in.dst);
      case Kind::kSwitch:
        read(in.a);
        for (int32_t i = 0; i < in.b; ++i) send(pool[in.c + i]);
        return leave();
      case Kind::kJump: return send(in.a), leave();
      case Kind::kCall: {
        const Function& callee = program_.functions[in.a];
        return node(pool + in.c, callee.control.size(), callee.data, callee.results);
      }
      case Kind::kFire: {
        const Cell& cell = program_.cells[in.a];
        return node(pool + in.c, cell.exports.size(), cell.inputs, cell.outputs);
      }
      case Kind::kAlias:
        if (slot(in.a) == kUnset)
          fault_ = "ALIAS reads slot " + std::to_string(in.a) + " before it is written";
        slot(in.dst) = slot(in.a);
        return;
      case Kind::kReturn: return take(pool + in.c, function_.results), leave();
      case Kind::kImport: return take(&in.a, {program_.imports[in.b].value_class}), set(in.dst);
    }
  }

  // CALL and FIRE have one shape: registers, then slots read, then slots written.
  void node(const int32_t* operands, size_t num_registers, const std::vector<int32_t>& inputs,
            const std::vector<int32_t>& outputs) {
    read_all(operands, static_cast<int32_t>(num_registers));
    operands += num_registers;
    take(operands, inputs);
    operands += inputs.size();
    for (size_t i = 0; i < outputs.size(); ++i) slot(operands[i]) = outputs[i];
  }

  void take(const int32_t* slots, const std::vector<int32_t>& classes) {
    for (size_t i = 0; i < classes.size(); ++i)
      if (slot(slots[i]) != classes[i])
        fault_ = "slot " + std::to_string(slots[i]) + " holds class " +
                 std::to_string(slot(slots[i])) + " (-1: nothing), expected class " +
                 std::to_string(classes[i]);
  }

  void read(int32_t reg) {
    if (known_[reg] == kUnset)
      fault_ = "register " + std::to_string(reg) + " is read before it is written";
  }
  void read_all(const int32_t* regs, int32_t n) {
    for (int32_t i = 0; i < n; ++i) read(regs[i]);
  }
  void set(int32_t reg) { known_[reg] = kSet; }
  void leave() { known_.leave(); }

  const Program& program_;
  const Function& function_;
  Arrivals known_;  // registers, then slots
  std::string fault_;
};

}  // namespace

Status check_flow(const Program& program, int32_t function) {
  return FlowCheck(program, program.functions[function]).run();
}

}  // namespace jaxrec
