// Views of memory that belongs to the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/dtype.h"

namespace jaxrec {

template <class T>
class Span {
 public:
  Span() = default;
  Span(T* data, size_t size) : data_(data), size_(size) {}
  template <class U>
  Span(const std::vector<U>& items) : data_(items.data()), size_(items.size()) {}

  T& operator[](size_t i) const { return data_[i]; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size_; }
  size_t size() const { return size_; }
  Span first(size_t count) const { return {data_, count}; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

/// A dense row-major array: an input when only read, an output buffer when written.
struct Array {
  void* data = nullptr;
  DType dtype = DType::kI32;
  Span<const int64_t> dims;

  int64_t size() const {
    int64_t n = 1;
    for (int64_t dim : dims) n *= dim;
    return n;
  }
  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

/// The bytes of an array's first elements, and of all.
inline size_t bytes_of(const Array& array, int64_t elements) {
  return static_cast<size_t>(elements) * byte_width(array.dtype);
}
inline size_t bytes_of(const Array& array) { return bytes_of(array, array.size()); }

}  // namespace jaxrec
