#include "core/outline.h"

namespace jaxrec {
namespace {

class OutlineBuilder {
 public:
  OutlineBuilder(const Program& program, int32_t function, OutlineTable& table)
      : program_(program), function_(program.functions[function]), table_(table) {
    outline_.function = function;
    outline_.calls = static_cast<int32_t>(table.calls.size());
    outline_.firings = static_cast<int32_t>(table.firings.size());
    outline_.events = static_cast<int32_t>(table.events.size());
    slots_.resize(function_.num_slots);
    for (size_t i = 0; i < function_.data.size(); ++i)
      slots_[i] = {Ref::kOwnArg, static_cast<int32_t>(i)};
  }

  int32_t run(const std::vector<int32_t>& branches) {
    auto branch = branches.begin();
    for (const Instr* at = &program_.code[function_.code_begin];;) {
      switch (at->kind) {
        case Kind::kSwitch: at = &program_.code[program_.pool[at->c + *branch++]]; continue;
        case Kind::kJump: at = &program_.code[at->a]; continue;
        case Kind::kCall: call(*at); break;
        case Kind::kFire: fire(*at); break;
        case Kind::kAlias: slots_[at->dst] = slots_[at->a]; break;
        case Kind::kReturn: return finish(*at);
        default: break;
      }
      ++at;
    }
  }

 private:
  void call(const Instr& in) {
    const Function& callee = program_.functions[in.a];
    const int32_t* operands = program_.pool.data() + in.c + callee.control.size();
    const int32_t number = outline_.num_calls++;
    table_.events.push_back(~number);
    const int32_t num_args = static_cast<int32_t>(callee.data.size());
    table_.calls.push_back({in.a, in.b, read(operands, num_args), num_args});
    operands += callee.data.size();
    for (size_t i = 0; i < callee.results.size(); ++i)
      slots_[operands[i]] = {number, static_cast<int32_t>(i)};
  }

  void fire(const Instr& in) {
    const Cell& cell = program_.cells[in.a];
    const int32_t* operands = program_.pool.data() + in.c + cell.exports.size();
    table_.events.push_back(outline_.num_firings++);
    const int32_t num_inputs = static_cast<int32_t>(cell.inputs.size());
    const int32_t num_outputs = static_cast<int32_t>(cell.outputs.size());
    table_.firings.push_back({in.a, read(operands, num_inputs), num_inputs, num_outputs});
    operands += num_inputs;
    for (int32_t i = 0; i < num_outputs; ++i)
      slots_[operands[i]] = {Ref::kOwnOutput, outline_.num_outputs++};
    outline_.num_inputs += num_inputs;
  }

  int32_t finish(const Instr& in) {
    outline_.num_results = static_cast<int32_t>(function_.results.size());
    outline_.results = read(program_.pool.data() + in.c, outline_.num_results);
    table_.outlines.push_back(outline_);
    return static_cast<int32_t>(table_.outlines.size()) - 1;
  }

  int32_t read(const int32_t* slots, int32_t n) {
    const int32_t begin = static_cast<int32_t>(table_.refs.size());
    for (int32_t i = 0; i < n; ++i) table_.refs.push_back(slots_[slots[i]]);
    return begin;
  }

  const Program& program_;
  const Function& function_;
  OutlineTable& table_;
  Outline outline_;
  std::vector<Ref> slots_;
};

template <class T>
int32_t extend(std::vector<T>& into, const std::vector<T>& from) {
  const int32_t shift = static_cast<int32_t>(into.size());
  into.insert(into.end(), from.begin(), from.end());
  return shift;
}

}  // namespace

int32_t build_outline(const Program& program, int32_t function,
                      const std::vector<int32_t>& branches, OutlineTable& table) {
  return OutlineBuilder(program, function, table).run(branches);
}

int32_t OutlineTable::append(const OutlineTable& other) {
  const int32_t ref_shift = extend(refs, other.refs);
  const int32_t call_shift = extend(calls, other.calls);
  const int32_t firing_shift = extend(firings, other.firings);
  const int32_t event_shift = extend(events, other.events);
  const int32_t shift = extend(outlines, other.outlines);
  for (size_t i = call_shift; i < calls.size(); ++i) calls[i].args += ref_shift;
  for (size_t i = firing_shift; i < firings.size(); ++i) firings[i].inputs += ref_shift;
  for (size_t i = shift; i < outlines.size(); ++i) {
    outlines[i].calls += call_shift;
    outlines[i].firings += firing_shift;
    outlines[i].events += event_shift;
    outlines[i].results += ref_shift;
  }
  return shift;
}

}  // namespace jaxrec
