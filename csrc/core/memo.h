// Which frames of shared functions there are: calls with equal control arguments are one frame.
#pragma once

#include <cstdint>
#include <vector>

#include "core/call.h"
#include "core/program.h"

namespace jaxrec {

/// The frames of functions that are shared, found by function, lane and control arguments, and the
/// frames that are still open. Calls must come depth first.
class Memo {
 public:
  static constexpr int32_t kNone = -1;

  explicit Memo(const Program& program) : program_(program), slots_(kFirstSlots) {}

  /// The frame that runs an equal call, among `frames`, or kNone. Then the call is to become the
  /// next of `frames`, which is noted.
  int32_t find_or_add(const Call& call, const std::vector<const Call*>& frames);

  /// Whether the frame of the last call found has not returned: it led to that call.
  bool is_open(const Call& call, const Call& frame_call, int32_t frame) const {
    return frame_call.depth < call.depth && open_[frame_call.depth] == frame;
  }

  /// Notes that a call becomes frame `frame`. Whatever nested as deep before has returned.
  void enter(const Call& call, int32_t frame) {
    if (static_cast<size_t>(call.depth) >= open_.size()) open_.resize(2 * (call.depth + 1));
    open_[call.depth] = frame;
  }

 private:
  static constexpr size_t kFirstSlots = 256;

  // A hash is kept beside its frame, so that growing and most misses touch no call.
  struct Slot {
    uint64_t hash = 0;
    int32_t frame = kNone;
  };

  uint64_t hash(const Call& call) const;
  bool equal(const Call& a, const Call& b) const;
  void grow();

  const Program& program_;
  std::vector<Slot> slots_;  // open addressing; a power of two, at most half full
  size_t used_ = 0;
  std::vector<int32_t> open_;  // by depth: the frame that is open there
};

}  // namespace jaxrec
