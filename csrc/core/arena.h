// Memory for many small records that live until the whole schedule goes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace jaxrec {

/// Hands out memory that never moves (other workers may be reading it) and is freed all at once.
class Arena {
 public:
  void* allocate(size_t bytes) {
    bytes = (bytes + 7) & ~size_t{7};
    if (bytes > left_) grow(bytes);
    void* result = next_;
    next_ += bytes;
    left_ -= bytes;
    return result;
  }

 private:
  static constexpr size_t kFirstBlock = size_t{16} << 10;
  static constexpr size_t kLargestBlock = size_t{4} << 20;

  // Blocks double, so few calls cost little and many calls few allocations.
  void grow(size_t bytes) {
    const size_t size = std::max(bytes, next_size_);
    next_size_ = std::min(2 * next_size_, kLargestBlock);
    blocks_.emplace_back(new std::byte[size]);
    next_ = blocks_.back().get();
    left_ = size;
  }

  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::byte* next_ = nullptr;
  size_t left_ = 0;
  size_t next_size_ = kFirstBlock;
};

}  // namespace jaxrec
