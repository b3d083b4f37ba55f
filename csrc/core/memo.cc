#include "core/memo.h"

#include <algorithm>

namespace jaxrec {
namespace {

// The finaliser of MurmurHash3 (Austin Appleby): every bit of the input reaches every bit.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdull;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ull;
  return x ^ (x >> 33);
}

}  // namespace

int32_t Memo::find_or_add(const Call& call, const std::vector<const Call*>& frames) {
  if (2 * used_ >= slots_.size()) grow();
  const uint64_t key = hash(call);
  for (size_t at = key & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
    Slot& slot = slots_[at];
    if (slot.frame == kNone) {
      slot = {key, static_cast<int32_t>(frames.size())};
      ++used_;
      return kNone;
    }
    if (slot.hash == key && equal(*frames[slot.frame], call)) return slot.frame;
  }
}

uint64_t Memo::hash(const Call& call) const {
  uint64_t out = mix(static_cast<uint64_t>(call.callee) << 32 | static_cast<uint32_t>(call.lane));
  const size_t n = program_.functions[call.callee].control.size();
  for (size_t i = 0; i < n; ++i) out = mix(out ^ static_cast<uint64_t>(call.control()[i]));
  return out;
}

bool Memo::equal(const Call& a, const Call& b) const {
  const size_t n = program_.functions[a.callee].control.size();
  return a.callee == b.callee && a.lane == b.lane &&
         std::equal(a.control(), a.control() + n, b.control());
}

void Memo::grow() {
  std::vector<Slot> old(2 * slots_.size());
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.frame == kNone) continue;
    size_t at = slot.hash & (slots_.size() - 1);
    while (slots_[at].frame != kNone) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }
}

}  // namespace jaxrec
