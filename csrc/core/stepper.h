// The scheduler of a stepped program, whose control reads what cells compute.
//
// Frames run until they import a value that is not made yet; then they wait. After each wave its
// control values are on the tapes, so the frames that waited for them go on, make calls and fire
// cells, and the next wave is chosen from all that is ready, whichever frame and root it belongs
// to. In the end the waves that ran are laid out as a planned schedule is, so that everything after
// the forward pass cannot tell the two apart (step_finish.cc).
//
// Source: Arvind & Nikhil, "Executing a program on the MIT tagged-token dataflow architecture"
// (1990), for matching by tag and frame.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/agenda.h"
#include "core/arena.h"
#include "core/array_copies.h"
#include "core/call.h"
#include "core/cover.h"
#include "core/keeper.h"
#include "core/machine.h"
#include "core/memo.h"
#include "core/outline.h"
#include "core/pending.h"
#include "core/plan.h"
#include "core/ready_cells.h"

namespace jaxrec {

/// Rows that the tapes have room for, padding included; all empty: no bound. Without a bound rows
/// may be handed out again once no call can read their values any more; then a wave has a row for
/// each that it computes, as blocks that `reuse_rows` makes do.
struct Room {
  Span<const int64_t> value_rows;  // a class
  Span<const int64_t> cell_rows;   // a cell
  bool reuse = false;
};

/// A wave that runs next: what `write_wave` says of a planned one.
struct StepWave {
  int32_t kind;
  int32_t count;
  int32_t cell_row;
  int32_t first;   // of its firings in the order in which they run
  size_t outputs;  // where the starts of its blocks begin
};

class Stepper {
 public:
  /// Copies what it needs of the request. On failure `out` is empty.
  static Status start(const Request& request, const Room& room, std::unique_ptr<Stepper>& out);

  /// Goes on after the last waves, whose values are on `tapes`, one for each import of the program,
  /// and chooses the next wave, or the next sweep. After a failure, or a step that finds no more
  /// waves, there must be no other.
  Status step(const std::vector<Array>& tapes);

  const Program& program() const { return program_; }
  const std::vector<int64_t>& widths() const { return widths_; }
  bool sweeps() const { return sweeps_; }

  /// What the last step has chosen: a wave, or one of each cell; nothing when all has run.
  const std::vector<StepWave>& waves() const { return waves_; }
  int64_t num_calls() const { return static_cast<int64_t>(frames_.size()); }

  /// One of the waves as a row of the wave table, of kind -1 if it is not there; read rows are left
  /// 0.
  Status write_wave(size_t number, Span<int32_t> row) const;

  /// What one of the waves reads: value rows of each input, then exports of each in its type, then
  /// lanes; each [width]. Rows past the count repeat the first: a cell that checks what it gets
  /// finds nothing there that it would not find otherwise. All are 0 of an empty wave.
  Status write_operands(size_t number, const std::vector<Array>& buffers) const;

  /// The sweep as one array: of each cell its wave and what it reads, as above, each of them from
  /// a place on that is a multiple of 8 bytes. If there is none, only its first kind is written.
  Status write_sweep(Span<int32_t> out) const;

  /// Whether the next step reads what the waves up to this one write. If not, it may be made before
  /// they have run, with tapes that lack their values.
  bool reads_next() const { return !resumable_.empty(); }

  /// For each import how many rows of its tape the waves up to this one write, those before the
  /// first included.
  std::vector<int64_t> rows_made() const;

  /// The calls that led to a row of a wave, as text; an empty one for a row that is not there.
  std::string call_path(int64_t wave, int64_t row) const;

  /// After the step that found no more waves: for each result the value row of each root.
  Status write_results(const std::vector<Array>& rows);

  /// After the step that found no more waves: the schedule that was run. The stepper is of no use
  /// any more.
  Status finish(Schedule& out);

 private:
  enum class State { kRunning, kDone, kOver };
  struct Frame {
    Call* call;
    Word* space;  // registers, slots and branches while it runs
    const Instr* at;
    int32_t link;         // in the outlines' trie
    int32_t edge;         // of the call that made it; -1: a root
    int32_t first_value;  // its results
    int32_t branches = 0, calls = 0, firings = 0;
    int32_t first_edge = -1, last_edge = -1;
    int32_t outline = -1;
  };
  struct Edge {  // a call that a frame made; the frame it leads to may be shared
    int32_t frame, site;
    int32_t next;  // of the caller
  };
  struct Open {  // a frame in the order of plain recursion
    int32_t frame, site;
    int32_t next;   // edge
    int32_t calls;  // so far
  };
  struct StepFiring {
    int32_t cell, frame, ordinal;
    int32_t missing;  // inputs that are not made
    int32_t input;    // in inputs_
    int32_t output;   // first of its values
    size_t exported;  // in exports_
  };
  struct Space {  // of a function's frames
    size_t words;
    size_t slots, branches;  // first word
    std::vector<Word*> free;
  };

  Stepper() = default;

  Status start_unguarded(const Request& request, const Room& room);
  void measure_spaces();
  void make_roots(const Request& request);

  int32_t new_frame(Call* call, int32_t edge, int32_t first_value);
  int32_t find_shared(const Call& call);
  bool is_reported(const Frame& frame) const;
  void set_slot(int32_t* slots, int32_t index, int32_t value);
  void leave_slots(const Frame& frame);
  int32_t* slots(const Frame& frame) const;
  int32_t* branches(const Frame& frame) const;

  Status step_unguarded(const std::vector<Array>& tapes);
  Status check_tapes(const std::vector<Array>& tapes) const;
  Status check_calls() const;
  Status stop();
  Status run(int32_t frame);
  bool import(Frame& frame, int32_t number);
  Status load(int32_t frame);
  const Instr* branch(Frame& frame);
  Status call(int32_t frame);
  void fire(int32_t frame);
  void return_from(Frame& frame);

  void release(int32_t who);
  void add_ready(int32_t firing);
  Status issue(int32_t cell);
  Status issue_sweep();
  const Cell& cell_of(const StepWave& wave) const;
  void find_inputs(int32_t firing);
  int32_t take_rows(int32_t tape_class, int32_t count, int32_t rows);
  int32_t end_of_rows(int32_t tape_class) const;
  Status check_room(int32_t cell, int32_t count) const;
  std::vector<PathStep> path_to(int32_t frame) const;
  Status check_limits(int32_t frame) const;

  Status finish_unguarded(Schedule& out);
  template <class First, class Again>
  void depth_first(First first, Again again) const;
  Status find_cycle() const;
  std::vector<int32_t> order_frames(FrameTable& frames, int32_t& depth);
  void leave_what_ran();
  void place_rows(Schedule& out) const;
  void collect_exports(const std::vector<int32_t>& numbers, FrameTable& frames) const;

  Program program_;
  std::vector<Outer> outers_;
  ArrayCopies copies_;  // of the outer arrays
  std::vector<Array> tapes_;
  std::vector<int64_t> widths_;
  std::vector<double> costs_;
  std::vector<int64_t> value_room_, cell_room_;
  std::string names_;
  int64_t max_calls_ = -1, call_limit_ = 0, depth_limit_ = -1, lanes_ = 0;
  bool sweeps_ = false, collect_ = false;

  Arena arena_;
  std::unique_ptr<OutlineTable> table_;
  std::vector<Cover> covers_;  // of all cells, or of each
  Pending values_;
  std::unique_ptr<Keeper> keeper_;  // if rows are handed out again
  std::vector<int32_t> taken_;      // blocks of the wave, then
  std::vector<int32_t> starts_;     // and first rows of the blocks of all waves
  std::vector<Space> spaces_;
  std::vector<Frame> frames_;
  std::vector<Edge> edges_;
  std::unique_ptr<Memo> memo_;             // if a function is shared
  std::vector<const Call*> shared_calls_;  // of the frames of such functions
  std::vector<int32_t> shared_frames_;
  std::vector<int32_t> roots_;
  std::vector<int32_t> runnable_;   // frames, the last one next
  std::vector<int32_t> resumable_;  // frames whose value the wave under way makes
  int64_t blocked_ = 0;             // frames that wait for a value
  std::vector<StepFiring> firings_;
  std::vector<int32_t> inputs_;  // values, of all firings
  std::vector<Word> exports_;    // of all firings
  std::unique_ptr<ReadyCells> ready_;
  std::vector<int32_t> next_value_;  // free row, a class
  std::vector<int32_t> next_cell_;
  Agenda agenda_;  // what ran: firings_ in order
  std::vector<StepWave> waves_;
  std::vector<int32_t> out_starts_;  // of the blocks of waves_
  State state_ = State::kRunning;
};

}  // namespace jaxrec
