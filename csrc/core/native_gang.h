// Gangs: lanes that run a native program in lockstep, one instruction for all that stand at it.
//
// What is one word in a frame of the machine (native_stack.h) is a column here, with an element for
// each lane: an instruction is decoded once for all of them and computes with vectors. Of the lanes
// the deepest run first, and of these the ones at the earliest instruction, while the others wait.
// Calls return and jumps go forward, so this brings lanes together again that have parted. A call
// whose results are returned as they are keeps its caller's frame: a loop. Lanes that have ended
// make room for new ones.
//
// A gang only does what goes well. Where a read is out of range, calls nest too deeply or too few
// lanes stand together, its lanes go on alone, each on a stack of its own from where it is.
//
// Source: Collange, "Stack-less SIMT reconvergence at low cost" (2011), for the order; Pharr and
// Mark, "ispc: A SPMD compiler for high-performance CPU programming" (InPar 2012), for gangs.
#pragma once

#include <cstdint>
#include <memory>

#include "core/native_invocation.h"
#include "core/native_stack.h"

namespace jaxrec::native {

/// What a gang asks of the worker that runs it.
class LaneSource {
 public:
  virtual ~LaneSource() = default;

  /// Up to `most` lanes that have not begun: returns how many, from `first` on.
  virtual int64_t take_lanes(int64_t most, int64_t& first) = 0;

  /// So many lanes have ended, with their results in place.
  virtual void end_lanes(int64_t count) = 0;

  /// Called now and then with about the instructions of loops. False: stop.
  virtual bool goes_on(int64_t looped) = 0;

  /// The run has failed.
  virtual void fail(Fault fault) = 0;
};

class Gang {
 public:
  /// Why a gang stopped.
  enum class Exit {
    kDone,    // there are no more lanes
    kAlone,   // its lanes go on alone
    kUnfit,   // the same, and the program's lanes are better off so
    kStopped  // the source says so
  };

  static constexpr int64_t kLeastLanes = 16;  // of each worker; fewer run one after the other
  static constexpr int64_t kGangLanes = 64;   // of one gang

  static bool runs(const Invocation& at);
  static std::unique_ptr<Gang> make(const Invocation& at, LaneSource& source);
  virtual ~Gang() = default;

  /// Runs lanes from the source.
  virtual Exit run() = 0;

  /// Lanes that have begun and not ended.
  virtual int32_t live() const = 0;

  /// Sets up a stack that goes on with one of them, which leaves the gang.
  virtual void leave(Stack& stack) = 0;

  /// Calls made so far.
  int64_t calls() const { return calls_; }

 protected:
  int64_t calls_ = 0;
};

}  // namespace jaxrec::native
