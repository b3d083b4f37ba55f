// One pass in the order in which a plain recursive program would execute: when a value is asked
// for, the call or cell that makes it is done, so its origin is known and no chain is ever
// followed.
#include "core/walk.h"

namespace jaxrec {
namespace {

class Walker {
 public:
  Walker(const Program& program, const FrameTable& frames, int64_t lanes, Values& out)
      : program_(program), frames_(frames), table_(frames.table), lanes_(lanes), out_(out) {
    out.firings.resize(frames.totals.firing);
    out.executed.reserve(frames.totals.firing);
    out.producers.resize(frames.totals.output);
    out.inputs.resize(frames.totals.input);
    out.results.resize(frames.totals.result);
    args_.resize(frames.totals.arg);
  }

  void run() {
    for (size_t lane = 0; lane < frames_.roots.size(); ++lane) {
      const int32_t root = frames_.roots[lane];
      const size_t num_args = program_.entry_function().data.size();
      for (size_t k = 0; k < num_args; ++k)
        args_[frames_.starts[root].arg + k] = ~static_cast<ValueId>(k * lanes_ + lane);
      tree(root);  // no two roots share a frame: they are of different lanes
    }
  }

 private:
  // A frame that is being executed: what it did so far, so that it can go on after a call.
  struct Activation {
    int32_t frame;
    int32_t event, firing, input, output;
  };

  // The stack is on the heap: depth is bounded by memory.
  void tree(int32_t root) {
    Activation at = enter(root);
    for (;;) {
      if (const int32_t child = advance(at); child >= 0) {
        stack_.push_back(at);
        at = enter(child);
      } else if (!stack_.empty()) {
        at = stack_.back();
        stack_.pop_back();
      } else {
        return;
      }
    }
  }

  Activation enter(int32_t frame) {
    entered_ = frame + 1;
    const FrameStart& start = frames_.starts[frame];
    return {frame, frames_.outline(frame).events, start.firing, start.input, start.output};
  }

  // Runs the frame to its next call of a new frame, and returns that frame, or to its end, and
  // returns -1.
  int32_t advance(Activation& at) {
    const Outline& outline = frames_.outline(at.frame);
    const int32_t end = outline.events + outline.num_events();
    while (at.event < end) {
      const int32_t event = table_.events[at.event++];
      if (event < 0) {
        const int32_t child = call(at.frame, outline, ~event);
        if (child >= entered_) return child;
        continue;  // shared: its results are there
      }
      fire(at, table_.firings[outline.firings + event]);
    }
    ValueId* results = out_.results.data() + frames_.starts[at.frame].result;
    resolve(at.frame, outline.results, outline.num_results, results);
    return -1;
  }

  int32_t call(int32_t frame, const Outline& outline, int32_t ordinal) {
    const OutlineCall& call = table_.calls[outline.calls + ordinal];
    const int32_t child = frames_.children[frames_.starts[frame].child + ordinal];
    resolve(frame, call.args, call.num_args, args_.data() + frames_.starts[child].arg);
    return child;
  }

  void fire(Activation& at, const OutlineFiring& firing) {
    ValueId* inputs = out_.inputs.data() + at.input;
    resolve(at.frame, firing.inputs, firing.num_inputs, inputs);
    for (int32_t i = 0; i < firing.num_outputs; ++i) out_.producers[at.output + i] = at.firing;
    out_.executed.push_back(at.firing);
    out_.firings[at.firing++] = {firing.cell, at.frame, at.input, at.output};
    at.input += firing.num_inputs;
    at.output += firing.num_outputs;
  }

  void resolve(int32_t frame, int32_t refs, int32_t n, ValueId* out) const {
    const FrameStart& start = frames_.starts[frame];
    const int32_t* children = frames_.children.data() + start.child;
    for (const Ref *ref = table_.refs.data() + refs, *end = ref + n; ref != end; ++ref) {
      if (ref->source >= 0)
        *out++ = out_.results[frames_.starts[children[ref->source]].result + ref->index];
      else if (ref->source == Ref::kOwnOutput) *out++ = start.output + ref->index;
      else *out++ = args_[start.arg + ref->index];
    }
  }

  const Program& program_;
  const FrameTable& frames_;
  const OutlineTable& table_;
  const int64_t lanes_;
  Values& out_;
  std::vector<ValueId> args_;  // of each frame
  std::vector<Activation> stack_;
  int32_t entered_ = 0;  // frames so far: they are entered in the order of their numbers
};

}  // namespace

Values walk(const Program& program, const FrameTable& frames, int64_t lanes) {
  Values out;
  Walker(program, frames, lanes, out).run();
  return out;
}

}  // namespace jaxrec
