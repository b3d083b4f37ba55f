#include "core/stepper.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/denormals.h"
#include "core/names.h"

namespace jaxrec {
namespace {

constexpr int64_t kMostSteppedFrames = std::numeric_limits<int32_t>::max() / 4;
// Rows begin behind a pad, and a frame may make many values before the next look at their number.
constexpr size_t kMostValues = std::numeric_limits<int32_t>::max() - (1 << 26);

constexpr int32_t kNoValue = -1;  // of a slot that is not written yet

size_t words_of_ints(size_t n) { return (n + 1) / 2; }

size_t count_switches(const Program& program, const Function& function) {
  size_t n = 0;
  for (int32_t i = function.code_begin; i < function.code_end; ++i)
    n += program.code[i].kind == Kind::kSwitch;
  return n;
}

}  // namespace

Status Stepper::start(const Request& request, const Room& room, std::unique_ptr<Stepper>& out) {
  Status status = guarded([&] {
    out.reset(new Stepper());
    return out->start_unguarded(request, room);
  });
  if (!status.ok()) out.reset();
  return status;
}

Status Stepper::start_unguarded(const Request& request, const Room& room) {
  Request own = request;
  for (Array& outer : own.outers) outer = copies_.add(outer);
  widths_.assign(request.widths.begin(), request.widths.end());
  costs_.assign(request.costs.begin(), request.costs.end());
  own.widths = widths_;
  own.costs = costs_;
  if (Status status = bind_request(own, program_, outers_); !status.ok()) return status;
  value_room_.assign(room.value_rows.begin(), room.value_rows.end());
  cell_room_.assign(room.cell_rows.begin(), room.cell_rows.end());
  const bool sizes = (value_room_.empty() && cell_room_.empty()) ||
                     (value_room_.size() == static_cast<size_t>(program_.num_classes) &&
                      cell_room_.size() == program_.cells.size());
  if (!sizes) return program_error("the room needs a number a class and a number a cell");
  names_ = request.names;
  max_calls_ = request.max_calls;
  call_limit_ = request.call_limit < 0 ? kMostSteppedFrames
                                       : std::min(request.call_limit, kMostSteppedFrames);
  depth_limit_ = request.depth_limit < 0 ? kMostSteppedFrames : request.depth_limit;
  lanes_ = request.lanes;
  sweeps_ = request.sweeps;
  collect_ = request.collect;
  table_ = std::make_unique<OutlineTable>(program_);
  for (size_t i = 0; i < costs_.size(); i += widths_.size())
    covers_.emplace_back(Span<const int64_t>(widths_),
                         Span<const double>(costs_.data() + i, widths_.size()));
  const int32_t pad = static_cast<int32_t>(widths_.back());
  next_value_.assign(program_.num_classes, pad);
  if (room.reuse && !value_room_.empty())
    return program_error("rows are handed out again only where there is no bound");
  if (room.reuse) keeper_ = std::make_unique<Keeper>(program_.num_classes, pad, values_);
  next_cell_.assign(program_.cells.size(), pad);
  ready_ = std::make_unique<ReadyCells>(program_);
  if (program_.has_memo()) memo_ = std::make_unique<Memo>(program_);
  measure_spaces();
  make_roots(request);
  return {};
}

void Stepper::measure_spaces() {
  for (const Function& function : program_.functions) {
    Space space;
    space.slots = function.num_registers;
    space.branches = space.slots + words_of_ints(function.num_slots);
    space.words = space.branches + words_of_ints(count_switches(program_, function)) + 1;
    spaces_.push_back(std::move(space));
  }
}

void Stepper::make_roots(const Request& request) {
  const Function& entry = program_.entry_function();
  std::vector<int32_t> starts;
  for (int32_t c : entry.data)
    starts.push_back(take_rows(c, static_cast<int32_t>(lanes_), static_cast<int32_t>(lanes_)));
  for (int32_t lane = 0; lane < lanes_; ++lane) {
    Call* call =
        new_call(arena_, {0, Call::kRoot, 0, program_.entry, lane, 1}, entry.control.size());
    for (size_t i = 0; i < entry.control.size(); ++i)
      call->control()[i] = load_element(request.roots[i].data, request.roots[i].dtype, lane);
    if (entry.memo) find_shared(*call);  // no two roots are the same: their lanes differ
    const int32_t frame = new_frame(call, -1, values_.add(entry.results.size()));
    for (size_t k = 0; k < entry.data.size(); ++k) {
      const int32_t value = values_.add(1);
      set_slot(slots(frames_[frame]), static_cast<int32_t>(k), value);
      values_.make(value, starts[k] + lane, [](int32_t) {});
      if (keeper_ != nullptr) keeper_->made(value, taken_[k]);
    }
    roots_.push_back(frame);
  }
  for (int32_t block : taken_) keeper_->settle(block);
  for (size_t i = roots_.size(); i > 0; --i) runnable_.push_back(roots_[i - 1]);
}

int32_t* Stepper::slots(const Frame& frame) const {
  return reinterpret_cast<int32_t*>(frame.space + spaces_[frame.call->callee].slots);
}

int32_t* Stepper::branches(const Frame& frame) const {
  return reinterpret_cast<int32_t*>(frame.space + spaces_[frame.call->callee].branches);
}

int32_t Stepper::new_frame(Call* call, int32_t edge, int32_t first_value) {
  const Function& function = program_.functions[call->callee];
  Space& space = spaces_[call->callee];
  Frame frame{};
  frame.call = call;
  if (space.free.empty()) {
    frame.space = static_cast<Word*>(arena_.allocate(space.words * sizeof(Word)));
  } else {
    frame.space = space.free.back();
    space.free.pop_back();
  }
  std::copy_n(call->control(), function.control.size(), frame.space);
  frame.at = &program_.code[function.code_begin];
  frame.link = call->callee;
  frame.edge = edge;
  frame.first_value = first_value;
  frame.first_edge = frame.last_edge = frame.outline = -1;
  frames_.push_back(frame);
  if (keeper_ != nullptr) {
    std::fill_n(slots(frame), function.num_slots, kNoValue);
    for (size_t i = 0; is_reported(frame) && i < function.results.size(); ++i)
      keeper_->hold(first_value + static_cast<int32_t>(i));
  }
  return static_cast<int32_t>(frames_.size()) - 1;
}

// Whether the results of a frame may be read when its caller has returned.
bool Stepper::is_reported(const Frame& frame) const {
  const int32_t function = frame.call->callee;
  return frame.edge < 0 || program_.functions[function].memo ||
         (collect_ && function == program_.entry);
}

void Stepper::set_slot(int32_t* slots, int32_t index, int32_t value) {
  if (keeper_ != nullptr) {
    keeper_->hold(value);
    if (slots[index] != kNoValue) keeper_->drop(slots[index]);
  }
  slots[index] = value;
}

void Stepper::leave_slots(const Frame& frame) {
  const int32_t* slot = slots(frame);
  for (int32_t i = 0; i < program_.functions[frame.call->callee].num_slots; ++i)
    if (slot[i] != kNoValue) keeper_->drop(slot[i]);
}

// The frame of an equal call of a shared function, or -1. Then the call must become the next frame.
int32_t Stepper::find_shared(const Call& call) {
  const int32_t found = memo_->find_or_add(call, shared_calls_);
  if (found != Memo::kNone) return shared_frames_[found];
  shared_calls_.push_back(&call);
  shared_frames_.push_back(static_cast<int32_t>(frames_.size()));
  return -1;
}

Status Stepper::step(const std::vector<Array>& tapes) {
  Status status = guarded([&] { return step_unguarded(tapes); });
  if (!status.ok()) state_ = State::kOver;
  return status;
}

Status Stepper::step_unguarded(const std::vector<Array>& tapes) {
  if (state_ != State::kRunning) return program_error("a step after the last one");
  if (Status status = check_tapes(tapes); !status.ok()) return status;
  tapes_ = tapes;
  waves_.clear();
  out_starts_.clear();
  const FlushDenormals flush;
  while (!runnable_.empty() || !resumable_.empty()) {
    std::vector<int32_t>& next = runnable_.empty() ? resumable_ : runnable_;
    const int32_t frame = next.back();
    next.pop_back();
    if (Status status = run(frame); !status.ok()) return status;
  }
  if (Status status = check_calls(); !status.ok()) return status;
  const int32_t cell = ready_->choose(blocked_ > 0);
  if (cell < 0) return stop();
  return sweeps_ ? issue_sweep() : issue(cell);
}

// Every row that may be read must be there.
Status Stepper::check_tapes(const std::vector<Array>& tapes) const {
  if (tapes.size() != program_.imports.size())
    return program_error("a step needs a tape for each import");
  for (size_t i = 0; i < tapes.size(); ++i) {
    const Import& import = program_.imports[i];
    if (tapes[i].dtype != import.dtype || tapes[i].rank() != 1)
      return program_error("a tape of imports is not a vector of its type");
    if (tapes[i].size() < end_of_rows(import.value_class))
      return program_error("a tape of imports has too few rows");
  }
  return {};
}

Status Stepper::check_calls() const {
  if (max_calls_ < 0 || num_calls() <= max_calls_) return {};
  const std::string n = std::to_string(num_calls());
  return capacity_error(Names(program_, names_).function(program_.entry) + " made " + n +
                            " calls so far in one invocation, but max_calls is " +
                            std::to_string(max_calls_) +
                            " (declared, or as many as the nodes that index its calls, each "
                            "counted once). Pass rec_fn(max_calls=" +
                            n +
                            ") or more (its calls, or which branch they take, depend on computed "
                            "values, so how many are needed is known only at the end), or call "
                            "eagerly without one: capacity then grows by itself, and "
                            "a recursion without end is told.",
                        num_calls());
}

// There are no more waves: all is done, or what is left waits for itself.
Status Stepper::stop() {
  if (memo_ != nullptr)
    if (Status status = find_cycle(); !status.ok()) return status;
  if (blocked_ > 0 || ready_->any_left()) return internal_error("calls wait for one another");
  state_ = State::kDone;
  return {};
}

// Runs a frame to its end, or to an import that has to wait. The frame may move: calls are made.
Status Stepper::run(int32_t number) {
  Word* reg = frames_[number].space;
  for (const Instr* at = frames_[number].at;;) {
    switch (at->kind) {
      case Kind::kConst: reg[at->dst] = at->imm; break;
      case Kind::kUnary: reg[at->dst] = at->unary(reg[at->a]); break;
      case Kind::kBinary: reg[at->dst] = at->binary(reg[at->a], reg[at->b]); break;
      case Kind::kSelect: reg[at->dst] = reg[reg[at->a] != 0 ? at->c : at->b]; break;
      case Kind::kSwitch:
        frames_[number].at = at;
        at = branch(frames_[number]);
        continue;
      case Kind::kJump: at = &program_.code[at->a]; continue;
      case Kind::kAlias: {
        int32_t* slot = slots(frames_[number]);
        set_slot(slot, at->dst, slot[at->a]);
        break;
      }
      case Kind::kLoad:
        frames_[number].at = at;
        if (Status status = load(number); !status.ok()) return status;
        break;
      case Kind::kCall:
        frames_[number].at = at;
        if (Status status = call(number); !status.ok()) return status;
        break;
      case Kind::kFire:
        frames_[number].at = at;
        fire(number);
        break;
      case Kind::kImport:
        frames_[number].at = at;
        if (!import(frames_[number], number)) return {};
        break;
      case Kind::kReturn:
        frames_[number].at = at;
        return_from(frames_[number]);
        return {};
    }
    ++at;
  }
}

// False: the frame waits, and will run this instruction again.
bool Stepper::import(Frame& frame, int32_t number) {
  const Instr& in = *frame.at;
  const int32_t value = values_.find(slots(frame)[in.a]);
  const int32_t row = values_.row(value);
  if (row == Pending::kNotMade) {
    values_.wait(value, ~number);
    ++blocked_;
    return false;
  }
  frame.space[in.dst] = load_element(tapes_[in.b].data, program_.imports[in.b].dtype, row);
  return true;
}

Status Stepper::load(int32_t number) {
  const Frame& frame = frames_[number];
  const Instr& in = *frame.at;
  const Outer& outer = outers_[in.a];
  const int32_t* operands = program_.pool.data() + in.b;
  int64_t offset;
  if (const int32_t axis = locate(outer, operands, frame.space, offset); axis >= 0) {
    IndexFault fault{frame.call, in.a, axis, {}};
    for (size_t i = 0; i < outer.dims.size(); ++i) fault.index.push_back(frame.space[operands[i]]);
    return index_error(Names(program_, names_), path_to(number), fault, outer);
  }
  frame.space[in.dst] = outer.load(outer.array.data, outer.base(frame.call->lane) + offset);
  return {};
}

const Instr* Stepper::branch(Frame& frame) {
  const Instr& in = *frame.at;
  const auto index =
      static_cast<int32_t>(std::clamp<Word>(frame.space[in.a], 0, static_cast<Word>(in.b) - 1));
  branches(frame)[frame.branches++] = index;
  frame.link = table_->follow(frame.link, in.b, index);
  return &program_.code[program_.pool[in.c + index]];
}

Status Stepper::call(int32_t number) {
  const Instr& in = *frames_[number].at;
  const Function& callee = program_.functions[in.a];
  const Call& caller = *frames_[number].call;
  Call* call =
      new_call(arena_, {0, number, frames_[number].calls++, in.a, caller.lane, caller.depth + 1},
               callee.control.size());
  const int32_t* operands = program_.pool.data() + in.c;
  for (size_t i = 0; i < callee.control.size(); ++i)
    call->control()[i] = frames_[number].space[*operands++];
  const int32_t edge = static_cast<int32_t>(edges_.size());
  int32_t child = callee.memo ? find_shared(*call) : -1;
  const bool is_new = child < 0;
  if (is_new) child = new_frame(call, edge, values_.add(callee.results.size()));
  edges_.push_back({child, in.b, -1});
  Frame& frame = frames_[number];
  (frame.first_edge < 0 ? frame.first_edge : edges_[frame.last_edge].next) = edge;
  frame.last_edge = edge;
  int32_t* own = slots(frame);
  if (is_new) {
    int32_t* its = slots(frames_[child]);
    for (size_t i = 0; i < callee.data.size(); ++i)
      set_slot(its, static_cast<int32_t>(i), own[operands[i]]);
    runnable_.push_back(child);
  }
  operands += callee.data.size();
  for (size_t i = 0; i < callee.results.size(); ++i)
    set_slot(own, operands[i], frames_[child].first_value + static_cast<int32_t>(i));
  return is_new ? check_limits(child) : Status{};
}

Status Stepper::check_limits(int32_t frame) const {
  const Call& call = *frames_[frame].call;
  if (call.depth > depth_limit_)
    return depth_limit_error(program_, Names(program_, names_), path_to(frame), call, depth_limit_);
  if (num_calls() > call_limit_)
    return call_limit_error(program_, Names(program_, names_), path_to(frame), call, call_limit_);
  if (values_.size() > kMostValues || edges_.size() > kMostValues)
    return internal_error("more than " + std::to_string(kMostValues) + " values in one invocation");
  return {};
}

void Stepper::fire(int32_t number) {
  Frame& frame = frames_[number];
  const Instr& in = *frame.at;
  const Cell& cell = program_.cells[in.a];
  const int32_t* operands = program_.pool.data() + in.c;
  int32_t* slot = slots(frame);
  const int32_t firing = static_cast<int32_t>(firings_.size());
  firings_.push_back({in.a, number, frame.firings++, 0, static_cast<int32_t>(inputs_.size()),
                      values_.add(cell.outputs.size()), exports_.size()});
  for (size_t i = 0; i < cell.exports.size(); ++i) exports_.push_back(frame.space[*operands++]);
  for (size_t i = 0; i < cell.inputs.size(); ++i) {
    const int32_t value = values_.find(slot[*operands++]);
    inputs_.push_back(value);
    if (keeper_ != nullptr) keeper_->hold(value);
    if (values_.row(value) != Pending::kNotMade) continue;
    values_.wait(value, firing);
    ++firings_[firing].missing;
  }
  for (size_t i = 0; i < cell.outputs.size(); ++i)
    set_slot(slot, *operands++, firings_[firing].output + static_cast<int32_t>(i));
  ready_->expect(in.a);
  if (firings_[firing].missing == 0) add_ready(firing);
}

void Stepper::return_from(Frame& frame) {
  const Function& function = program_.functions[frame.call->callee];
  const int32_t* operands = program_.pool.data() + frame.at->c;
  const int32_t* slot = slots(frame);
  for (size_t i = 0; i < function.results.size(); ++i) {
    const int32_t result = frame.first_value + static_cast<int32_t>(i);
    if (keeper_ != nullptr) keeper_->join(result, slot[operands[i]]);
    values_.join(result, slot[operands[i]], [this](int32_t who) { release(who); });
  }
  if (keeper_ != nullptr) leave_slots(frame);
  int32_t& outline = table_->links[frame.link];
  if (outline == OutlineTable::kNone) {
    const int32_t* taken = branches(frame);
    outline = build_outline(program_, frame.call->callee, {taken, taken + frame.branches}, *table_);
  }
  frame.outline = outline;
  spaces_[frame.call->callee].free.push_back(frame.space);
  frame.space = nullptr;
}

void Stepper::release(int32_t who) {
  if (who < 0) {
    --blocked_;
    resumable_.push_back(~who);
  } else if (--firings_[who].missing == 0) {
    add_ready(who);
  }
}

void Stepper::add_ready(int32_t firing) {
  const StepFiring& it = firings_[firing];
  ready_->add(it.cell, firing, frames_[it.frame].call->depth);
}

std::vector<PathStep> Stepper::path_to(int32_t frame) const {
  std::vector<PathStep> path;
  for (;; frame = frames_[frame].call->parent) {
    const Frame& at = frames_[frame];
    path.push_back({at.call->callee, at.edge < 0 ? -1 : edges_[at.edge].site});
    if (at.edge < 0) break;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace jaxrec
