// The schedule that a stepper leaves: its frames in preorder, the waves as they ran.
#include <algorithm>
#include <utility>

#include "core/names.h"
#include "core/stepper.h"

namespace jaxrec {
namespace {

template <class T>
void leave(std::vector<T>& items) {
  std::vector<T>().swap(items);
}

}  // namespace

// Follows the calls as plain recursion does, on a stack of its own. `first` gets the stack where a
// frame is met first, on its top; `again` gets the stack, the call and whether the frame is open
// where it is met again, and ends the search by returning true.
template <class First, class Again>
void Stepper::depth_first(First first, Again again) const {
  enum : char { kNew, kOpen, kClosed };
  std::vector<char> met(frames_.size(), kNew);
  std::vector<Open> stack;
  const auto enter = [&](int32_t frame, int32_t site) {
    stack.push_back({frame, site, frames_[frame].first_edge, 0});
    met[frame] = kOpen;
    first(stack);
  };
  for (int32_t root : roots_) {
    enter(root, -1);
    while (!stack.empty()) {
      Open& top = stack.back();
      if (top.next < 0) {
        met[top.frame] = kClosed;
        stack.pop_back();
        continue;
      }
      const Edge& edge = edges_[top.next];
      top.next = edge.next;
      ++top.calls;
      if (met[edge.frame] == kNew) enter(edge.frame, edge.site);
      else if (again(stack, edge, met[edge.frame] == kOpen)) return;
    }
  }
}

// A shared call that leads to itself waits for its own result.
Status Stepper::find_cycle() const {
  Status found;
  depth_first([](const std::vector<Open>&) {},
              [&](const std::vector<Open>& stack, const Edge& edge, bool open) {
                if (!open) return false;
                std::vector<PathStep> path;
                for (const Open& at : stack)
                  path.push_back({frames_[at.frame].call->callee, at.site});
                const Call& call = *frames_[edge.frame].call;
                path.push_back({call.callee, edge.site});
                found = itself_error(program_, Names(program_, names_), path, call);
                return true;
              });
  return found;
}

Status Stepper::write_results(const std::vector<Array>& rows) {
  if (state_ != State::kDone) return program_error("it is finished before its last step");
  const size_t count = program_.entry_function().results.size();
  if (rows.size() != count) return program_error("there is an array of rows for each result");
  for (size_t k = 0; k < count; ++k) {
    if (rows[k].dtype != DType::kI32 || rows[k].size() != static_cast<int64_t>(roots_.size()))
      return program_error("rows of results are int32, one a root");
    int32_t* row = rows[k].as<int32_t>();
    for (int32_t root : roots_)
      *row++ = values_.row(values_.find(frames_[root].first_value + static_cast<int32_t>(k)));
  }
  return {};
}

Status Stepper::finish(Schedule& out) {
  if (state_ != State::kDone) return program_error("it is finished before its last step");
  state_ = State::kOver;
  return guarded([&] { return finish_unguarded(out); });
}

Status Stepper::finish_unguarded(Schedule& out) {
  out.frames = std::make_unique<FrameTable>(program_);
  FrameTable& frames = *out.frames;
  frames.table = std::move(*table_);
  const std::vector<int32_t> numbers = order_frames(frames, out.expansion.depth);
  if (Status status = place_frames(program_, {0}, frames); !status.ok()) return status;
  collect_exports(numbers, frames);
  Agenda agenda{{}, agenda_.waves};
  for (int32_t firing : agenda_.order)
    agenda.order.push_back(frames.starts[numbers[firings_[firing].frame]].firing +
                           firings_[firing].ordinal);
  out.names = names_;
  out.collect = collect_;
  out.num_widths = static_cast<int64_t>(widths_.size());
  out.expansion.arena = std::move(arena_);
  out.expansion.num_calls = num_calls();
  const bool placed = keeper_ != nullptr;
  leave_what_ran();
  out.program = std::move(program_);
  out.values = walk(out.program, frames, lanes_);
  const LayoutOptions options{{widths_, costs_, sweeps_}, collect_, true, &agenda};
  if (Status status = lay_out(out.program, frames, out.values, options, out.layout); !status.ok())
    return status;
  if (placed) place_rows(out);
  return {};
}

// Gives memory back before the schedule takes its own.
void Stepper::leave_what_ran() {
  for (int32_t c = 0; c < program_.num_classes; ++c) next_value_[c] = end_of_rows(c);
  keeper_.reset();
  values_ = {};
  agenda_ = {};
  leave(frames_);
  leave(edges_);
  leave(firings_);
  leave(inputs_);
  leave(exports_);
}

// Value rows as they were handed out, some of them several times.
void Stepper::place_rows(Schedule& out) const {
  Layout& layout = out.layout;
  const int32_t* start = starts_.data();
  for (size_t w = 0; w < layout.waves.size(); ++w) {
    const Wave& wave = layout.waves[w];
    for (size_t k = 0; k < out.program.cells[wave.cell].outputs.size(); ++k, ++start) {
      layout.out_starts[w * layout.max_out + k] = *start;
      for (int32_t i = 0; i < wave.count; ++i)
        layout.output_rows[out.values.firings[layout.order[wave.first + i]].output + k] =
            *start + i;
    }
  }
  for (size_t c = 0; c < layout.value_rows.size(); ++c)
    layout.value_rows[c] = end_of_rows(static_cast<int32_t>(c)) - layout.pad;
}

// Gives frames their numbers in preorder, as an expansion does. A shared frame may have been met
// first by another call than the one that preorder meets first: that one becomes its caller.
std::vector<int32_t> Stepper::order_frames(FrameTable& frames, int32_t& depth) {
  std::vector<int32_t> numbers(frames_.size());
  depth = 0;
  depth_first(
      [&](const std::vector<Open>& stack) {
        const int32_t at = stack.back().frame;
        numbers[at] = frames.size();
        Call* call = frames_[at].call;
        if (stack.size() > 1) {
          const Open& caller = stack[stack.size() - 2];
          call->parent = numbers[caller.frame];
          call->ordinal = caller.calls - 1;
        }
        call->depth = static_cast<int32_t>(stack.size());
        depth = std::max(depth, call->depth);
        frames.calls.push_back(call);
        frames.outlines.push_back(frames_[at].outline);
      },
      [&](const std::vector<Open>& stack, const Edge& edge, bool) {
        const Open& caller = stack.back();
        Call fields = *frames_[edge.frame].call;
        fields.parent = numbers[caller.frame];
        fields.ordinal = caller.calls - 1;
        frames.repeats.push_back({new_call(arena_, fields, 0), numbers[edge.frame]});
        return false;
      });
  return numbers;
}

void Stepper::collect_exports(const std::vector<int32_t>& numbers, FrameTable& frames) const {
  std::vector<int32_t> firings(firings_.size());
  for (size_t i = 0; i < firings_.size(); ++i)
    firings[frames.starts[numbers[firings_[i].frame]].firing + firings_[i].ordinal] =
        static_cast<int32_t>(i);
  frames.exports.reserve(exports_.size());
  for (int32_t i : firings) {
    const size_t count = program_.cells[firings_[i].cell].exports.size();
    const auto begin = exports_.begin() + static_cast<std::ptrdiff_t>(firings_[i].exported);
    frames.exports.insert(frames.exports.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
  }
}

}  // namespace jaxrec
