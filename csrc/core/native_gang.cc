#include "core/native_gang.h"

#include <algorithm>

#include "core/native_columns.h"
#include "core/native_standing.h"

namespace jaxrec::native {
namespace {

constexpr int32_t kMostDepth = 2048;
constexpr int64_t kMostBytes = int64_t{1} << 23;  // of all frames
constexpr int64_t kPoll = 128;  // calls and turns of loops, each of a group of lanes

template <class W>
class GangOf final : public Gang {
 public:
  GangOf(const Invocation& at, LaneSource& source)
      : at_(at),
        program_(at.program),
        source_(source),
        width_(choose_width(at)),
        registers_(static_cast<int32_t>(program_.frame_words) - 1),
        columns_(registers_ + 1),
        most_depth_(choose_depth(at, int64_t{columns_} * width_ * sizeof(W))),
        least_(1 + width_ * 5 / 16),
        ops_(Columns<W>::best()),
        kernels_(program_.code.size()),
        is_tail_(program_.code.size()),
        now_(ops_, width_),
        scratch_(width_),
        lanes_(width_),
        bases_(at.outers.size() * width_),
        returns_(1) {
    for (size_t pc = 0; pc < kernels_.size(); ++pc) {
      kernels_[pc] = kernel_of(program_.code[pc]);
      is_tail_[pc] = is_tail(pc);
    }
    reserve(1);
  }

  int32_t live() const override { return live_; }

  Exit run() override {
    polls_ = 0;
    all_together_ = 0;
    admit();
    if (!now_.elect()) return Exit::kDone;
    follow();
    do {
      if (now_.meets()) regroup();
    } while (step(program_.code[now_.pc]));
    return exit_;
  }

  void leave(Stack& stack) override {
    const auto [i, depth, pc] = now_.take();
    --live_;
    stack.task = nullptr;
    stack.depth = static_cast<int32_t>(frame(depth)[registers_ * width_ + i]);
    stack.lane = lanes_[i];
    // Fails when it runs.
    if (!stack.enter(program_.functions[0], at_.depth_limit - stack.depth)) return;
    for (int32_t level = 1;; ++level) {
      for (int32_t r = 0; r < registers_; ++r) stack.fp[r] = frame(level)[r * width_ + i];
      if (level == depth) break;
      if (!stack.grow()) return;
      stack.fp += stack.frame_words;
      stack.fp[-1] = reinterpret_cast<Word>(program_.code.data() + returns_[level + 1]);
    }
    stack.pc = program_.code.data() + pc;
  }

 private:
  // Instructions. Each returns whether the gang goes on; otherwise `exit_` says why not.

  bool step(const Instr& in) {
    const auto op = static_cast<MachineOp>(in.op);
    if (kernels_[now_.pc] == nullptr) return is_jump(op) ? jump(in, op) : compute(in, op);
    if (is_compare_branch(op)) {
      kernels_[now_.pc](scratch_.data(), column(in.a), column(in.b), short_immediate(in), width_);
      return split(scratch_.data(), in.ref.target);
    }
    kernels_[now_.pc](target(in.dst), column(in.a), column(in.b), to_element<W>(in.imm), width_);
    return keep(in.dst);
  }

  static bool is_jump(MachineOp op) {
    return leaves(op) || (op >= MachineOp::BRANCH && op <= MachineOp::CALLN);
  }

  bool compute(const Instr& in, MachineOp op) {
    const int32_t one = in.a;
    switch (op) {
      case MachineOp::CONST: std::fill_n(target(in.dst), width_, to_element<W>(in.imm)); break;
      case MachineOp::MOVE: std::copy_n(column(in.a), width_, target(in.dst)); break;
      case MachineOp::UNARY:
        each(target(in.dst), [&](int32_t i) { return program_.unary[in.b](column(in.a)[i]); });
        break;
      case MachineOp::BINARY:
        each(target(in.dst), [&](int32_t i) {
          return program_.binary[in.ref.x](column(in.a)[i], column(in.b)[i]);
        });
        break;
      case MachineOp::SELECT:
        ops_.select(target(in.dst), column(in.a), column(in.ref.x), column(in.b), width_);
        break;
      case MachineOp::WRAP_kI32:
      case MachineOp::WRAP_kI64:
        ops_.wrap(target(in.dst), column(in.a), to_element<W>(in.imm), width_);
        break;
      case MachineOp::LOAD0: return load(in.dst, in.a, nullptr);
      case MachineOp::LOADN: return load(in.dst, in.a, program_.pool.data() + in.ref.x);
      default: return load(in.dst, in.b, &one);
    }
    return keep(in.dst);
  }

  bool jump(const Instr& in, MachineOp op) {
    switch (op) {
      case MachineOp::BRANCH: return split(column(in.a), in.ref.target);
      case MachineOp::SWITCH: return choose_each(in);
      case MachineOp::JUMP: now_.pc += in.ref.target; return true;
      case MachineOp::LOOP: return loop(in);
      case MachineOp::RET1:
      case MachineOp::RETN:
      case MachineOp::RET_IMM: return now_.depth > 1 ? return_(in) : end(in);
      default: return is_tail_[now_.pc] ? call_last(in) : call(in);
    }
  }

  bool stop(Exit exit) {
    exit_ = exit;
    now_.park();
    return false;
  }

  static int32_t choose_width(const Invocation& at) {
    const int64_t share = (at.lanes + at.workers - 1) / at.workers;
    const int64_t rounded = (share + kColumnStep - 1) / kColumnStep * kColumnStep;
    return static_cast<int32_t>(std::min(rounded, kGangLanes));
  }

  static int32_t choose_depth(const Invocation& at, int64_t frame_bytes) {
    const int64_t most = std::max<int64_t>(kMostBytes / std::max<int64_t>(frame_bytes, 1), 1);
    return static_cast<int32_t>(std::min({most, int64_t{kMostDepth}, at.depth_limit}));
  }

  // Whether a call's results are what its caller returns, as they are.
  bool is_tail(size_t pc) const {
    if (program_.call_of[pc] < 0) return false;
    const CallSite& site = program_.calls[program_.call_of[pc]];
    const Instr& next = program_.code[pc + 1];
    const auto op = static_cast<MachineOp>(next.op);
    const int32_t* results = program_.pool.data() + site.results;
    const size_t count = program_.functions[site.callee].results.size();
    if (op == MachineOp::RET1) return count == 1 && results[0] == next.a;
    return op == MachineOp::RETN && count == next.a &&
           std::equal(results, results + count, program_.pool.data() + next.ref.x);
  }

  ColumnFn<W> kernel_of(const Instr& in) const {
    const auto op = static_cast<MachineOp>(in.op);
    if (is_arithmetic(op) || is_compare_branch(op)) return ops_.of(op);
    if (op == MachineOp::UNARY) return ops_.of(program_.unary[in.b]);
    return op == MachineOp::BINARY ? ops_.of(program_.binary[in.ref.x]) : nullptr;
  }

  // The word of the immediate of a comparison that branches.
  static W short_immediate(const Instr& in) {
    constexpr DType kTypes[] = {
#define JAXREC_TYPE(op, f, d, t) DType::d, DType::d,
        JAXREC_HOT_COMPARE(JAXREC_TYPE)
#undef JAXREC_TYPE
    };
    if (kTypes[in.op - static_cast<int32_t>(kFirstBranch)] != DType::kF64) return in.ref.x;
    const auto narrow = from_word<float>(in.ref.x);
    return to_element<W>(to_word(static_cast<double>(narrow)));
  }

  // Columns. A frame of the gang is one of each lane's frames at that depth; the first is 1. Behind
  // its registers it counts the calls of each lane that have kept their caller's frame.

  W* frame(int32_t level) {
    return frames_.data() + static_cast<size_t>(level - 1) * columns_ * width_;
  }
  W* column(int32_t reg) { return fp_ + static_cast<size_t>(reg) * width_; }

  void reserve(int32_t level) {
    const size_t needed = static_cast<size_t>(level) * columns_ * width_;
    if (needed > frames_.size()) frames_.resize(std::max(needed, 2 * frames_.size()));
    if (static_cast<size_t>(level) >= returns_.size()) returns_.resize(2 * returns_.size() + 1);
    fp_ = frame(now_.depth);
  }

  // Where an instruction writes: at once, unless lanes of this depth wait, whose registers stay.
  W* target(int32_t reg) { return now_.apart ? column(reg) : scratch_.data(); }
  bool keep(int32_t reg) {
    if (!now_.apart) blend(column(reg), scratch_.data());
    ++now_.pc;
    return true;
  }

  void blend(W* to, const W* from) const { ops_.blend(to, from, now_.mask(), width_); }

  void copy(int32_t reg, const W* from) {
    if (now_.apart) std::copy_n(from, width_, column(reg));
    else blend(column(reg), from);
  }

  template <class Of>
  void each(W* out, Of of) {
    for (int32_t i = 0; i < width_; ++i)
      if (now_.runs(i)) out[i] = to_element<W>(of(i));
  }

  // Outer arrays.

  // Reads elements whose indices stand in registers.
  bool load(int32_t dst, int32_t number, const int32_t* indices) {
    const Outer& outer = at_.outers[number];
    const int64_t* bases = bases_.data() + static_cast<size_t>(number) * width_;
    int64_t inside[kGangLanes] = {};
    for (size_t axis = 0; axis < outer.dims.size(); ++axis)
      if (!ops_.locate(inside, column(indices[axis]), now_.mask(), outer.dims[axis], width_))
        return stop(Exit::kAlone);
    const int64_t* places = outer.dims.size() == 0 ? bases : inside;
    if (places != bases && outer.lane_size != 0)
      for (int32_t i = 0; i < width_; ++i) inside[i] += bases[i];
    W* out = target(dst);
    if (byte_width(outer.array.dtype) == sizeof(W))
      ops_.gather(out, outer.array.data, places, width_);
    else each(out, [&](int32_t i) { return outer.load(outer.array.data, places[i]); });
    return keep(dst);
  }

  // Which lanes run.

  // After a choice: the registers are those of its depth.
  bool follow() {
    fp_ = frame(now_.depth);
    return true;
  }

  void regroup() {
    now_.regroup();
    follow();
  }

  bool split(const W* test, int32_t distance) {
    now_.split(test, distance);
    return follow();
  }

  bool turn() {
    now_.turn();
    return follow();
  }

  bool choose_each(const Instr& in) {
    const W* index = column(in.a);
    const int32_t* targets = program_.pool.data() + in.ref.x;
    now_.jump_each([&](int32_t i) { return targets[std::clamp<Word>(index[i], 0, in.b - 1)]; });
    return follow();
  }

  bool loop(const Instr& in) {
    looped_ -= int64_t{in.ref.target} * now_.count;
    if (!may_go_on()) return false;
    now_.pc += in.ref.target;
    return turn();
  }

  // Asks the source now and then; stops if too few lanes run together.
  bool may_go_on() {
    together_ += now_.count;
    if (--budget_ >= 0) return true;
    const bool sparse = together_ < kPoll * least_;
    ++polls_;
    all_together_ += together_;
    together_ = 0;
    budget_ = kPoll;
    if (!source_.goes_on(looped_)) return stop(Exit::kStopped);
    if (!sparse) return true;
    return stop(all_together_ < polls_ * kPoll * least_ ? Exit::kUnfit : Exit::kAlone);
  }

  // Calls. All lanes of a frame were called at once, as those that go deeper go first: they return
  // to one place.

  bool call(const Instr& in) {
    if (now_.depth >= most_depth_) return stop(Exit::kUnfit);
    if (!may_go_on()) return false;
    const CallSite& site = program_.calls[program_.call_of[now_.pc]];
    const size_t num_args = program_.functions[site.callee].args.size();
    reserve(now_.depth + 1);
    W* next = frame(now_.depth + 1);
    for (size_t k = 0; k < num_args; ++k)
      std::copy_n(column(program_.pool[site.args + k]), width_, next + k * width_);
    std::copy_n(column(registers_), width_, next + registers_ * width_);
    now_.deepen();
    returns_[now_.depth] = now_.pc + 1;
    fp_ = next;
    return enter(in);
  }

  // A call that keeps its caller's frame, and so comes at once to where that returns to.
  bool call_last(const Instr& in) {
    if (!may_go_on()) return false;
    const CallSite& site = program_.calls[program_.call_of[now_.pc]];
    const int32_t num_args = static_cast<int32_t>(program_.functions[site.callee].args.size());
    const int32_t* args = program_.pool.data() + site.args;
    reserve(now_.depth + 1);
    W* next = frame(now_.depth + 1);
    for (int32_t k = 0; k < num_args; ++k)
      if (args[k] != k) std::copy_n(column(args[k]), width_, next + k * width_);
    for (int32_t k = 0; k < num_args; ++k)
      if (args[k] != k) copy(k, next + k * width_);
    ops_.step(column(registers_), now_.mask(), width_);
    ++most_kept_;
    return enter(in) && turn();
  }

  bool enter(const Instr& in) {
    now_.pc = in.ref.target;
    calls_ += now_.count;
    if (most_kept_ + now_.depth <= at_.depth_limit || !is_too_deep()) return true;
    source_.fail(Fault::kDepth);
    return stop(Exit::kStopped);
  }

  bool is_too_deep() {
    const W* kept = column(registers_);
    bool found = false;
    for (int32_t i = 0; i < width_; ++i)
      found |= now_.runs(i) && int64_t{kept[i]} + now_.depth > at_.depth_limit;
    return found;
  }

  bool return_(const Instr& in) {
    const int32_t after = returns_[now_.depth];
    const CallSite& site = program_.calls[program_.call_of[after - 1]];
    const W* from = fp_;
    fp_ = frame(--now_.depth);
    now_.pc = after;
    const int32_t* to = program_.pool.data() + site.results;
    results(in, from, [&](size_t k, const W* result) { blend(column(to[k]), result); });
    if (now_.count != live_) regroup();
    return true;
  }

  // Passes the results of a return on, each with its number.
  template <class To>
  void results(const Instr& in, const W* registers, To to) {
    const auto op = static_cast<MachineOp>(in.op);
    if (op == MachineOp::RET_IMM) {
      std::fill_n(scratch_.data(), width_, to_element<W>(in.imm));
      return to(0, scratch_.data());
    }
    const int32_t one = in.a;
    const int32_t* from = op == MachineOp::RET1 ? &one : program_.pool.data() + in.ref.x;
    const int32_t count = op == MachineOp::RET1 ? 1 : in.a;
    for (int32_t k = 0; k < count; ++k) to(k, registers + static_cast<size_t>(from[k]) * width_);
  }

  // Lanes that begin and end.

  void admit() {
    for (int32_t i = 0; i < width_ && has_more_;) {
      int64_t first = 0;
      int64_t count = source_.take_lanes(width_ - live_, first);
      has_more_ = count > 0;
      for (; count > 0; ++i)
        if (now_.is_free(i)) {
          begin(i, static_cast<int32_t>(first++));
          --count;
        }
      if (live_ == width_) break;
    }
  }

  void begin(int32_t i, int32_t lane) {
    lanes_[i] = lane;
    now_.begin(i, program_.functions[0].code_begin);
    W* args = frame(1) + i;
    args[registers_ * width_] = 0;
    for (size_t k = 0; k < at_.roots.size(); ++k) {
      const Port& port = program_.roots[k];
      for (int32_t e = 0; e < port.count; ++e, args += width_)
        *args = to_element<W>(
            load_element(at_.roots[k].data, port.dtype, int64_t{lane} * port.count + e));
    }
    for (size_t k = 0; k < at_.outers.size(); ++k)
      bases_[k * width_ + i] = at_.outers[k].base(lane);
    ++live_;
    ++calls_;
  }

  bool end(const Instr& in) {
    size_t array = 0;
    int32_t element = 0;
    results(in, fp_, [&](size_t, const W* result) {
      while (element == program_.results[array].count) ++array, element = 0;
      store(array, element++, result);
    });
    now_.end();
    live_ -= now_.count;
    source_.end_lanes(now_.count);
    if (live_ <= width_ / 2) admit();
    exit_ = Exit::kDone;
    return now_.elect() && follow();
  }

  void store(size_t array, int32_t element, const W* result) const {
    const Port& port = program_.results[array];
    for (int32_t i = 0; i < width_; ++i)
      if (now_.runs(i))
        store_element(at_.results[array].data, port.dtype,
                      int64_t{lanes_[i]} * port.count + element, result[i]);
  }

  const Invocation& at_;
  const Program& program_;
  LaneSource& source_;
  const int32_t width_;
  const int32_t registers_;
  const int32_t columns_;  // of a frame
  const int32_t most_depth_;
  const int32_t least_;  // lanes that run together on average, or each runs faster alone
  const Columns<W>& ops_;
  std::vector<ColumnFn<W>> kernels_;  // by instruction
  std::vector<bool> is_tail_;         // by instruction

  std::vector<W> frames_;
  Standing<W> now_;
  std::vector<W> scratch_;
  std::vector<int32_t> lanes_;    // by place in columns
  std::vector<int64_t> bases_;    // of each outer array each lane's first element
  std::vector<int32_t> returns_;  // by depth: the instruction behind the call

  W* fp_ = nullptr;
  int32_t live_ = 0;  // lanes that have begun and not ended
  bool has_more_ = true;

  int64_t most_kept_ = 0;  // calls in one frame, of any lane, at most
  int64_t looped_ = 0;
  int64_t together_ = 0;      // lanes at calls and turns since the last poll,
  int64_t all_together_ = 0;  // and before that
  int64_t polls_ = 0;         // of this run
  int64_t budget_ = kPoll;
  Exit exit_ = Exit::kDone;
};

}  // namespace

bool Gang::runs(const Invocation& at) {
  return at.lockstep && at.lanes >= kLeastLanes * at.workers && !at.program.memo &&
         at.program.code.size() < static_cast<size_t>(Standing<int32_t>::kPcs);
}

std::unique_ptr<Gang> Gang::make(const Invocation& at, LaneSource& source) {
  if (at.program.half_words) return std::make_unique<GangOf<int32_t>>(at, source);
  return std::make_unique<GangOf<int64_t>>(at, source);
}

}  // namespace jaxrec::native
