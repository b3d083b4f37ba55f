// A work-stealing deque: its owner pushes and pops at the bottom, thieves take from the top.
//
// David Chase and Yossi Lev, "Dynamic circular work-stealing deque", SPAA 2005, with the memory
// orders of Nhat Minh Lê, Antoniu Pop, Albert Cohen and Francesco Zappa Nardelli, "Correct and
// efficient work-stealing for weak memory models", PPoPP 2013. Where they put a sequentially
// consistent fence, the accesses around it are sequentially consistent here: the same guarantee,
// and thread sanitizers understand it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace jaxrec {

/// Holds pointers; null means "nothing". One owner thread, any number of thieves.
template <class T>
class Deque {
 public:
  explicit Deque(int64_t capacity = 64) {
    ring_.store(add_ring(capacity), std::memory_order_relaxed);
  }
  Deque(const Deque&) = delete;
  Deque& operator=(const Deque&) = delete;

  /// Owner only.
  void push(T* item) {
    // Relaxed: only the owner writes bottom_.
    const int64_t bottom = bottom_.load(std::memory_order_relaxed);
    // Acquire: slots below the top we see may be overwritten, so their thieves must be done
    // reading.
    const int64_t top = top_.load(std::memory_order_acquire);
    Ring* ring = ring_.load(std::memory_order_relaxed);
    if (bottom - top >= ring->capacity) ring = grow(ring, top, bottom);
    ring->put(bottom, item);
    // Release: whoever sees the new bottom sees the item, and the record it points to.
    bottom_.store(bottom + 1, std::memory_order_release);
  }

  /// Owner only: the item pushed last, or null.
  T* pop() {
    const int64_t bottom = bottom_.load(std::memory_order_relaxed) - 1;
    Ring* ring = ring_.load(std::memory_order_relaxed);
    // Sequentially consistent, as is the load of top_: our claim on the item comes before we look
    // at the top in the one order that `steal` (top, then bottom) takes part in, so of an owner and
    // a thief that are after the same item at least one sees the other.
    bottom_.store(bottom, std::memory_order_seq_cst);
    int64_t top = top_.load(std::memory_order_seq_cst);
    if (top > bottom) {  // it was empty
      bottom_.store(bottom + 1, std::memory_order_relaxed);
      return nullptr;
    }
    T* item = ring->get(bottom);
    if (top < bottom) return item;
    // The last item: race the thieves for it by moving the top, as they do.
    if (!top_.compare_exchange_strong(top, top + 1, std::memory_order_seq_cst,
                                      std::memory_order_relaxed))
      item = nullptr;
    bottom_.store(bottom + 1, std::memory_order_relaxed);
    return item;
  }

  /// Any thread: the item pushed first, or null when there is none or another thread was faster.
  /// `index` is set to the item's place: later steals from this deque have greater ones.
  T* steal(int64_t& index) {
    int64_t top = top_.load(std::memory_order_seq_cst);
    // Also acquires what `push` released.
    const int64_t bottom = bottom_.load(std::memory_order_seq_cst);
    if (top >= bottom) return nullptr;
    // Acquire: see the slots that `grow` copied before it published the ring.
    T* item = ring_.load(std::memory_order_acquire)->get(top);
    // The item counts only if the top is still ours to move; otherwise its slot may be reused.
    if (!top_.compare_exchange_strong(top, top + 1, std::memory_order_seq_cst,
                                      std::memory_order_relaxed))
      return nullptr;
    index = top;
    return item;
  }

  /// Any thread: a hint.
  bool seems_empty() const {
    return top_.load(std::memory_order_relaxed) >= bottom_.load(std::memory_order_relaxed);
  }

 private:
  struct Ring {
    explicit Ring(int64_t n) : capacity(n), slots(new std::atomic<T*>[n]) {}
    // Relaxed: bottom_ and top_ order the slots.
    T* get(int64_t i) const { return slots[i & (capacity - 1)].load(std::memory_order_relaxed); }
    void put(int64_t i, T* item) {
      slots[i & (capacity - 1)].store(item, std::memory_order_relaxed);
    }
    const int64_t capacity;  // a power of two
    std::unique_ptr<std::atomic<T*>[]> slots;
  };

  Ring* add_ring(int64_t capacity) {
    rings_.push_back(std::make_unique<Ring>(capacity));
    return rings_.back().get();
  }

  Ring* grow(Ring* old, int64_t top, int64_t bottom) {
    Ring* ring = add_ring(2 * old->capacity);
    for (int64_t i = top; i < bottom; ++i) ring->put(i, old->get(i));
    // Release: a thief that sees the new ring sees the copies. The old ring stays for thieves that
    // still read it.
    ring_.store(ring, std::memory_order_release);
    return ring;
  }

  // Apart, so that owner and thieves do not share a cache line.
  alignas(64) std::atomic<int64_t> top_{0};
  alignas(64) std::atomic<int64_t> bottom_{0};
  alignas(64) std::atomic<Ring*> ring_{nullptr};
  std::vector<std::unique_ptr<Ring>> rings_;  // the owner's
};

}  // namespace jaxrec
