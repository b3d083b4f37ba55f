#include "core/native_machine.h"

#include <algorithm>

#include "core/arith_ops.h"

namespace jaxrec::native {
namespace {

// A short immediate of a comparison: integers as they are, float64 as the float32 that equals it.
template <class T>
T short_immediate(int32_t x) {
  if constexpr (std::is_floating_point_v<T>) return from_word<float>(static_cast<uint32_t>(x));
  else return static_cast<T>(x);
}

constexpr int32_t kTurning = 1 << 13;  // instructions of loops between two polls

template <class T>
Word wrap_index(Word index, Word size) {
  return index < 0 ? to_word(ops::Add::apply(from_word<T>(index), from_word<T>(size))) : index;
}

}  // namespace

Machine::Machine(const Program& program, const std::vector<Outer>& outers, Supervisor& supervisor)
    : program_(program), outers_(outers), supervisor_(supervisor), bound_(outers.size()) {
  for (const Outer& outer : outers) by_lane_ |= outer.lane_size != 0;
}

void Machine::bind(int32_t lane) {
  if (lane_ == lane) return;
  memo_.clear();  // lanes share no calls
  const bool bound = lane_ >= 0 && !by_lane_;
  lane_ = lane;
  if (bound) return;
  for (size_t i = 0; i < outers_.size(); ++i) {
    const Outer& outer = outers_[i];
    const size_t offset = static_cast<size_t>(outer.base(lane)) * byte_width(outer.array.dtype);
    bound_[i] = {static_cast<const char*>(outer.array.data) + offset,
                 outer.dims.size() == 0 ? 1 : outer.dims[0], outer.load};
  }
}

// One more call does not fit, or it is time to ask the supervisor.
Machine::Enter Machine::prepare_call(Stack& stack) {
  if (budget_ > 0) return stack.grow() ? Enter::kGo : Enter::kFault;
  refill();
  if (supervisor_.poll(stack, looped_)) return Enter::kGo;
  return stack.fault == Fault::kNone ? Enter::kStop : Enter::kFault;
}

void Machine::refill() {
  budget_ = Supervisor::kPoll;
  counted_ += Supervisor::kPoll;
}

bool Machine::load(Stack& stack) {
  const Instr& in = *stack.pc;
  const Outer& outer = outers_[in.a];
  int64_t offset;
  const int32_t axis = locate(outer, program_.pool.data() + in.ref.x, stack.fp, offset);
  if (axis >= 0) return fail_load(stack, axis);
  stack.fp[in.dst] = bound_[in.a].load(bound_[in.a].data, offset);
  return true;
}

bool Machine::fail_load(Stack& stack, int32_t axis) {
  const Instr& in = *stack.pc;
  const bool any_rank = in.op == static_cast<uint16_t>(MachineOp::LOADN);
  fault_ = {nullptr, any_rank ? in.a : in.b, axis, {}};
  if (!any_rank) fault_.index.push_back(stack.fp[in.a]);
  for (size_t i = 0; any_rank && i < outers_[in.a].dims.size(); ++i)
    fault_.index.push_back(stack.fp[program_.pool[in.ref.x + i]]);
  stack.fault = Fault::kIndex;
  return false;
}

// The results of a call with equal arguments that has ended, or null: `stack.fault` is set if one
// has not, otherwise `memo_call_` is the new call.
const Word* Machine::find_memo(Stack& stack, const CallSite& call) {
  const Function& callee = program_.functions[call.callee];
  key_.clear();
  for (size_t i = 0; i < callee.args.size(); ++i)
    key_.push_back(stack.fp[program_.pool[call.args + i]]);
  const Memo::Call found =
      memo_.find_or_open(call.callee, key_.data(), key_.size(), callee.results.size());
  memo_call_ = found.at;
  if (found.is_new) return nullptr;
  if (!memo_.is_open(found.at)) return memo_.results(found.at);
  stack.fault = Fault::kCycle;
  return nullptr;
}

void Machine::keep_memo(const Word* fp, const Instr& in) {
  const int64_t call = fp[program_.frame_words - 2];
  Word* const results = memo_.results(call);
  for (int32_t i = 0; i < in.a; ++i) results[i] = fp[program_.pool[in.ref.x + i]];
  memo_.close(call);
}

void Machine::begin(Stack& stack) {
  bind(stack.lane);
  const Function& entry = program_.functions[0];
  if (entry.memo)
    stack.fp[program_.frame_words - 2] =
        memo_.find_or_open(0, stack.args(), entry.args.size(), entry.results.size()).at;
  count_call();
}

void Machine::count_call() {
  if (budget_ == 0) refill();
  --budget_;
}

// The jump straight from one instruction to the next teaches a branch predictor what follows what;
// it takes labels as values, which GCC and Clang have.
#define JAXREC_NEXT goto* labels[pc->op]
#define JAXREC_STEP \
  ++pc;             \
  JAXREC_NEXT

// What a call does before it writes the callee's registers, which `next` points to.
#define JAXREC_ENTER                                      \
  Word* const next = fp + frame_words;                    \
  if (__builtin_expect(next >= limit, 0)) goto slow_call; \
  if (__builtin_expect(--budget < 0, 0)) goto slow_call;  \
  next[-1] = reinterpret_cast<Word>(pc + 1)

// What is hot is kept in local variables; `stack` and `budget_` have their values only around calls
// of other functions.
Exit Machine::run(Stack& stack) {
  bind(stack.lane);
  const Instr* const code = program_.code.data();
  const int32_t* const pool = program_.pool.data();
  const Bound* const bound = bound_.data();
  const int64_t frame_words = program_.frame_words;
  const Instr* pc = stack.pc;
  Word* fp = stack.fp;
  Word* limit = stack.limit;
  int64_t budget = budget_;
  int32_t turning = kTurning;

  static const void* const labels[] = {
#define JAXREC_PLAIN(name) &&name,
#define JAXREC_ARITHMETIC(op, f, d, t) &&op##_##d, &&op##_##d##_IMM,
#define JAXREC_BRANCH(op, f, d, t) &&BRANCH_##op##_##d, &&BRANCH_##op##_##d##_IMM,
#define JAXREC_LOAD(d, t) &&LOAD1_##d,
      JAXREC_NATIVE_PLAIN(JAXREC_PLAIN) JAXREC_HOT_ARITHMETIC(JAXREC_ARITHMETIC)
          JAXREC_HOT_COMPARE(JAXREC_ARITHMETIC) JAXREC_HOT_COMPARE(JAXREC_BRANCH)
              JAXREC_HOT_LOAD(JAXREC_LOAD)};
#undef JAXREC_PLAIN
#undef JAXREC_ARITHMETIC
#undef JAXREC_BRANCH
#undef JAXREC_LOAD
  JAXREC_NEXT;

CONST:
  fp[pc->dst] = pc->imm;
  JAXREC_STEP;
MOVE:
  fp[pc->dst] = fp[pc->a];
  JAXREC_STEP;
UNARY:
  fp[pc->dst] = program_.unary[pc->b](fp[pc->a]);
  JAXREC_STEP;
BINARY:
  fp[pc->dst] = program_.binary[pc->ref.x](fp[pc->a], fp[pc->b]);
  JAXREC_STEP;
SELECT:
  fp[pc->dst] = fp[pc->a] != 0 ? fp[pc->ref.x] : fp[pc->b];
  JAXREC_STEP;
WRAP_kI32:
  fp[pc->dst] = wrap_index<int32_t>(fp[pc->a], pc->imm);
  JAXREC_STEP;
WRAP_kI64:
  fp[pc->dst] = wrap_index<int64_t>(fp[pc->a], pc->imm);
  JAXREC_STEP;
LOAD0:
  fp[pc->dst] = bound[pc->a].load(bound[pc->a].data, 0);
  JAXREC_STEP;
LOAD1:
  {
    const Word index = fp[pc->a];
    const Bound& outer = bound[pc->b];
    if (__builtin_expect(static_cast<uint64_t>(index) >= static_cast<uint64_t>(outer.size), 0))
      goto bad_index;
    fp[pc->dst] = outer.load(outer.data, index);
  }
  JAXREC_STEP;
LOADN:
  stack.fp = fp;
  stack.pc = pc;
  if (!load(stack)) return Exit::kFault;
  JAXREC_STEP;
BRANCH:
  pc += fp[pc->a] != 0 ? pc->ref.target : 1;
  JAXREC_NEXT;
SWITCH:
  {
    const Word index = std::clamp<Word>(fp[pc->a], 0, pc->b - 1);
    pc += pool[pc->ref.x + index];
  }
  JAXREC_NEXT;
JUMP:
  pc += pc->ref.target;
  JAXREC_NEXT;
LOOP:
  if (__builtin_expect((turning += pc->ref.target) < 0, 0)) goto slow_turn;
  pc += pc->ref.target;
  JAXREC_NEXT;

CALL1:
  {
    JAXREC_ENTER;
    next[0] = fp[pc->a];
    fp = next;
    pc = code + pc->ref.target;
  }
  JAXREC_NEXT;
CALL2:
  {
    JAXREC_ENTER;
    next[0] = fp[pc->a];
    next[1] = fp[pc->b];
    fp = next;
    pc = code + pc->ref.target;
  }
  JAXREC_NEXT;
CALL3:
  {
    JAXREC_ENTER;
    next[0] = fp[pc->a];
    next[1] = fp[pc->b];
    next[2] = fp[pc->ref.x];
    fp = next;
    pc = code + pc->ref.target;
  }
  JAXREC_NEXT;
CALLN:
  {
    JAXREC_ENTER;
    const int32_t* args = pool + pc->ref.x + pc->b;
    for (int32_t i = 0; i < pc->a; ++i) next[i] = fp[args[i]];
    fp = next;
    pc = code + pc->ref.target;
  }
  JAXREC_NEXT;
CALL_MEMO:
  {
    JAXREC_ENTER;
    stack.fp = fp;
    stack.pc = pc;
    const CallSite& call = program_.site_before(pc + 1);
    if (const Word* known = find_memo(stack, call)) {
      ++budget;  // no call was made
      for (int32_t i = 0; i < pc->b; ++i) fp[pool[pc->ref.x + i]] = known[i];
      JAXREC_STEP;
    }
    if (stack.fault != Fault::kNone) return Exit::kFault;
    const int32_t* args = pool + call.args;
    for (int32_t i = 0; i < pc->a; ++i) next[i] = fp[args[i]];
    next[frame_words - 2] = memo_call_;
    fp = next;
    pc = code + pc->ref.target;
  }
  JAXREC_NEXT;

RET_MEMO:
  keep_memo(fp, *pc);
  goto return_all;
RETN:
return_all:
  {
    const int32_t* from = pool + pc->ref.x;
    const int32_t count = pc->a;
    const Word* const registers = fp;
    pc = reinterpret_cast<const Instr*>(fp[-1]);
    fp -= frame_words;
    const int32_t* to = pool + pc[-1].ref.x;
    for (int32_t i = 0; i < count; ++i) fp[to[i]] = registers[from[i]];
  }
  JAXREC_NEXT;
RET1:
  {
    const Word result = fp[pc->a];
    pc = reinterpret_cast<const Instr*>(fp[-1]);
    fp -= frame_words;
    fp[pc[-1].dst] = result;
  }
  JAXREC_NEXT;
RET_IMM:
  {
    const Word result = pc->imm;
    pc = reinterpret_cast<const Instr*>(fp[-1]);
    fp -= frame_words;
    fp[pc[-1].dst] = result;
  }
  JAXREC_NEXT;

END:
  stack.fp = fp;
  budget_ = budget;
  return Exit::kDone;

JOIN:
  stack.fp = fp;
  stack.pc = pc;
  budget_ = budget;
  if (!stack.next_call()) {
    // Release: who ends the last task goes on with this stack. Acquire: or we do, with its results.
    if (stack.joins.back()->pending.fetch_sub(1, std::memory_order_acq_rel) != 1)
      return Exit::kWaiting;
    stack.finish_join();
  }
  pc = stack.pc;
  JAXREC_NEXT;

#define JAXREC_ARITHMETIC(op, f, d, t)                                                         \
  op##_##d : fp[pc->dst] =                                                                     \
                 to_word(ops::f::apply(from_word<t>(fp[pc->a]), from_word<t>(fp[pc->b])));     \
  JAXREC_STEP;                                                                                 \
  op##_##d##_IMM : fp[pc->dst] =                                                               \
                       to_word(ops::f::apply(from_word<t>(fp[pc->a]), from_word<t>(pc->imm))); \
  JAXREC_STEP;
  JAXREC_HOT_ARITHMETIC(JAXREC_ARITHMETIC)
  JAXREC_HOT_COMPARE(JAXREC_ARITHMETIC)
#undef JAXREC_ARITHMETIC

// Each way has its own jump, for the predictor.
#define JAXREC_BRANCH(op, f, d, t)                                                           \
  BRANCH_##op##_##d : if (ops::f::apply(from_word<t>(fp[pc->a]), from_word<t>(fp[pc->b]))) { \
    pc += pc->ref.target;                                                                    \
    JAXREC_NEXT;                                                                             \
  }                                                                                          \
  JAXREC_STEP;                                                                               \
  BRANCH_##op##_##d##_IMM                                                                    \
      : if (ops::f::apply(from_word<t>(fp[pc->a]), short_immediate<t>(pc->ref.x))) {         \
    pc += pc->ref.target;                                                                    \
    JAXREC_NEXT;                                                                             \
  }                                                                                          \
  JAXREC_STEP;
  JAXREC_HOT_COMPARE(JAXREC_BRANCH)
#undef JAXREC_BRANCH

#define JAXREC_LOAD(d, t)                                                                       \
  LOAD1_##d : {                                                                                 \
    const Word index = fp[pc->a];                                                               \
    const Bound& outer = bound[pc->b];                                                          \
    if (__builtin_expect(static_cast<uint64_t>(index) >= static_cast<uint64_t>(outer.size), 0)) \
      goto bad_index;                                                                           \
    fp[pc->dst] = to_word(static_cast<const t*>(outer.data)[index]);                            \
  }                                                                                             \
  JAXREC_STEP;
  JAXREC_HOT_LOAD(JAXREC_LOAD)
#undef JAXREC_LOAD

slow_call:
  stack.fp = fp;
  stack.pc = pc;
  // The call is not made yet: it starts over.
  budget_ = std::max<int64_t>(budget, 0);
  switch (prepare_call(stack)) {
    case Enter::kFault: return Exit::kFault;
    case Enter::kStop: return Exit::kStopped;
    case Enter::kGo: break;
  }
  fp = stack.fp;
  limit = stack.limit;
  budget = budget_;
  JAXREC_NEXT;

slow_turn:
  stack.fp = fp;
  stack.pc = pc;
  budget_ = budget;
  looped_ += kTurning;
  turning = kTurning;
  if (!supervisor_.poll(stack, looped_))
    return stack.fault == Fault::kNone ? Exit::kStopped : Exit::kFault;
  JAXREC_NEXT;

bad_index:
  stack.fp = fp;
  stack.pc = pc;
  fail_load(stack, 0);
  return Exit::kFault;
}

}  // namespace jaxrec::native
