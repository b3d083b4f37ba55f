#include "core/native_memo.h"

#include <algorithm>

namespace jaxrec::native {
namespace {

constexpr size_t kFirstSlots = 64;

uint64_t mix(uint64_t x) {
  x ^= x >> 31;
  x *= 0x9e3779b97f4a7c15ull;
  return x ^ (x >> 29);
}

uint64_t hash_of(int32_t function, const Word* args, size_t num_args) {
  uint64_t hash = mix(static_cast<uint64_t>(function) + 1);
  for (size_t i = 0; i < num_args; ++i) hash = mix(hash * 31 + static_cast<uint64_t>(args[i]));
  return hash;
}

}  // namespace

void Memo::clear() {
  const size_t mask = slots_.size() - 1;
  for (size_t i = 0; i < entries_.size(); ++i) {  // the table may be much larger
    size_t at = entries_[i].hash & mask;
    while (slots_[at] != static_cast<int64_t>(i)) at = (at + 1) & mask;
    slots_[at] = kNone;
  }
  entries_.clear();
  words_.clear();
}

// The slot of an entry, or the free one where it belongs. There is always a free slot.
size_t Memo::slot(uint64_t hash, int32_t function, const Word* args, size_t num_args) const {
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask;; at = (at + 1) & mask) {
    if (slots_[at] == kNone) return at;
    const Entry& entry = entries_[slots_[at]];
    if (entry.hash == hash && entry.function == function &&
        std::equal(args, args + num_args, words_.begin() + entry.args))
      return at;
  }
}

int64_t Memo::find(int32_t function, const Word* args, size_t num_args) const {
  if (slots_.empty()) return kNone;
  return slots_[slot(hash_of(function, args, num_args), function, args, num_args)];
}

int64_t Memo::open(int32_t function, const Word* args, size_t num_args, size_t num_results) {
  if (2 * (entries_.size() + 1) > slots_.size()) rehash(std::max(kFirstSlots, 2 * slots_.size()));
  const uint64_t hash = hash_of(function, args, num_args);
  const int64_t entry = static_cast<int64_t>(entries_.size());
  const int64_t first = static_cast<int64_t>(words_.size());
  slots_[slot(hash, function, args, num_args)] = entry;
  entries_.push_back({hash, first, first + static_cast<int64_t>(num_args), function, true});
  words_.insert(words_.end(), args, args + num_args);
  words_.resize(words_.size() + num_results);
  return entry;
}

void Memo::rehash(size_t size) {
  slots_.assign(size, kNone);
  for (size_t i = 0; i < entries_.size(); ++i) {
    size_t at = entries_[i].hash & (size - 1);
    while (slots_[at] != kNone) at = (at + 1) & (size - 1);
    slots_[at] = static_cast<int64_t>(i);
  }
}

}  // namespace jaxrec::native
