#include "core/machine.h"

#include <algorithm>
#include <new>

namespace jaxrec {

Call* new_call(Arena& arena, const Call& fields, size_t num_control) {
  return new (arena.allocate(sizeof(Call) + num_control * sizeof(Word))) Call(fields);
}

Machine::Machine(const Program& program, const std::vector<Outer>& outers, Arena& arena,
                 OutlineTable& table)
    : program_(program), outers_(outers), arena_(arena), table_(table) {
  int32_t most = 0;
  for (const Function& function : program.functions) most = std::max(most, function.num_registers);
  registers_.resize(most);
}

bool Machine::run(const Call& call, Segment& segment) {
  const Function& function = program_.functions[call.callee];
  Word* reg = registers_.data();
  std::copy_n(call.control(), function.control.size(), reg);
  branches_.clear();
  made_.clear();
  int32_t link = call.callee;
  for (const Instr* at = &program_.code[function.code_begin];;) {
    switch (at->kind) {
      case Kind::kConst: reg[at->dst] = at->imm; break;
      case Kind::kUnary: reg[at->dst] = at->unary(reg[at->a]); break;
      case Kind::kBinary: reg[at->dst] = at->binary(reg[at->a], reg[at->b]); break;
      case Kind::kSelect: reg[at->dst] = reg[reg[at->a] != 0 ? at->c : at->b]; break;
      case Kind::kLoad:
        if (!load(*at, call)) return false;
        break;
      case Kind::kSwitch: at = branch(*at, link); continue;
      case Kind::kJump: at = &program_.code[at->a]; continue;
      case Kind::kCall: make_call(*at, call, segment); break;
      case Kind::kFire:
        for (size_t i = 0; i < program_.cells[at->a].exports.size(); ++i)
          segment.exports.push_back(reg[program_.pool[at->c + i]]);
        break;
      case Kind::kAlias:
      case Kind::kImport: break;  // the outline knows; a planned program imports nothing
      case Kind::kReturn: finish(call, segment, link); return true;
    }
    ++at;
  }
}

bool Machine::load(const Instr& in, const Call& call) {
  const Outer& outer = outers_[in.a];
  const int32_t* operands = program_.pool.data() + in.b;
  int64_t offset;
  if (const int32_t axis = locate(outer, operands, registers_.data(), offset); axis >= 0) {
    fault_ = {&call, in.a, axis, {}};
    for (size_t i = 0; i < outer.dims.size(); ++i) fault_.index.push_back(registers_[operands[i]]);
    return false;
  }
  registers_[in.dst] = outer.load(outer.array.data, outer.base(call.lane) + offset);
  return true;
}

// Clamps as lax.switch does, and notes the branch for the frame's outline.
const Instr* Machine::branch(const Instr& in, int32_t& link) {
  const Word index = std::clamp<Word>(registers_[in.a], 0, in.b - 1);
  branches_.push_back(static_cast<int32_t>(index));
  link = table_.follow(link, in.b, branches_.back());
  return &program_.code[program_.pool[in.c + index]];
}

void Machine::make_call(const Instr& in, const Call& caller, Segment& segment) {
  const size_t num_control = program_.functions[in.a].control.size();
  const int32_t frame = static_cast<int32_t>(segment.calls.size());
  const int32_t ordinal = static_cast<int32_t>(made_.size());
  Call* call = new_call(
      arena_, {segment.number, frame, ordinal, in.a, caller.lane, caller.depth + 1}, num_control);
  for (size_t i = 0; i < num_control; ++i) call->control()[i] = registers_[program_.pool[in.c + i]];
  made_.push_back(call);
}

void Machine::finish(const Call& call, Segment& segment, int32_t link) {
  if (table_.links[link] == OutlineTable::kNone)
    table_.links[link] = build_outline(program_, call.callee, branches_, table_);
  segment.calls.push_back(&call);
  segment.outlines.push_back(table_.links[link]);
}

}  // namespace jaxrec
