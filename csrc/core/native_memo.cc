#include "core/native_memo.h"

#include <algorithm>
#include <limits>
#include <new>

namespace jaxrec::native {
namespace {

constexpr size_t kFirstSlots = 256;

uint64_t mix(uint64_t x) {
  x ^= x >> 31;
  x *= 0x9e3779b97f4a7c15ull;
  return x ^ (x >> 29);
}

uint64_t hash_of(Word header, const Word* args, size_t num_args) {
  auto hash = static_cast<uint64_t>(header) + 1;
  for (size_t i = 0; i < num_args; ++i) hash = mix(hash * 31 + static_cast<uint64_t>(args[i]));
  return hash;
}

// What the place of a call in the table does not depend on.
uint16_t tag_of(uint64_t hash) { return static_cast<uint16_t>(hash >> 48); }

}  // namespace

void Memo::clear() {
  size_ = 0;
  words_.clear();
  if (++round_ != 0) return;
  slots_.assign(slots_.size(), Slot());
  round_ = 1;
}

Memo::Call Memo::find_or_open(int32_t function, const Word* args, size_t num_args,
                              size_t num_results) {
  if (4 * (size_ + 1) > 3 * slots_.size()) grow();
  const Word header = static_cast<Word>(num_args) << kArgsAt | function;
  const uint64_t hash = hash_of(header, args, num_args);
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  for (; slots_[at].round == round_; at = (at + 1) & mask) {
    if (slots_[at].tag != tag_of(hash)) continue;
    const Word* call = words_.data() + slots_[at].call;
    if ((call[0] & ~kOpen) == header && std::equal(args, args + num_args, call + 1))
      return {slots_[at].call, false};
  }
  const size_t call = words_.size();
  if (call > std::numeric_limits<uint32_t>::max()) throw std::bad_alloc();
  words_.resize(call + 1 + num_args + num_results);
  words_[call] = header | kOpen;
  std::copy_n(args, num_args, words_.data() + call + 1);
  slots_[at] = {round_, tag_of(hash), static_cast<uint32_t>(call)};
  ++size_;
  return {static_cast<int64_t>(call), true};
}

void Memo::grow() {
  std::vector<Slot> slots(std::max(kFirstSlots, 2 * slots_.size()));
  const size_t mask = slots.size() - 1;
  for (const Slot& slot : slots_) {
    if (slot.round != round_) continue;
    const Word* call = words_.data() + slot.call;
    size_t at = hash_of(call[0] & ~kOpen, call + 1, call[0] >> kArgsAt) & mask;
    while (slots[at].round == round_) at = (at + 1) & mask;
    slots[at] = slot;
  }
  slots_.swap(slots);
}

}  // namespace jaxrec::native
