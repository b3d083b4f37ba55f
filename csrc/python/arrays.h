// NumPy arrays to and from the core's views.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "core/array.h"

namespace jaxrec {

using NumpyIn =
    nanobind::ndarray<nanobind::numpy, nanobind::ro, nanobind::c_contig, nanobind::device::cpu>;
using NumpyOut = nanobind::ndarray<nanobind::numpy, nanobind::c_contig, nanobind::device::cpu>;
using Ints =
    nanobind::ndarray<nanobind::numpy, const int64_t, nanobind::ndim<1>, nanobind::c_contig>;

inline DType dtype_of(nanobind::dlpack::dtype type) {
  using nanobind::dlpack::dtype_code;
  const auto sized = [type](DType first) {
    for (int log2 = 0; log2 < 4; ++log2)
      if (type.bits == 8 << log2) return static_cast<DType>(static_cast<int>(first) + log2);
    throw nanobind::type_error("control values have 8, 16, 32 or 64 bits");
  };
  switch (static_cast<dtype_code>(type.code)) {
    case dtype_code::Bool: return DType::kBool;
    case dtype_code::Int: return sized(DType::kI8);
    case dtype_code::UInt: return sized(DType::kU8);
    case dtype_code::Float:
      if (type.bits == 32) return DType::kF32;
      if (type.bits == 64) return DType::kF64;
      [[fallthrough]];
    default:
      throw nanobind::type_error("control values must be bool, integers, float32 or float64");
  }
}

/// A view of an array that the caller keeps alive; its dimensions are read from the array itself.
template <class Numpy>
Array view(const Numpy& array) {
  return {const_cast<void*>(static_cast<const void*>(array.data())),
          dtype_of(array.dtype()),
          {array.shape_ptr(), array.ndim()}};
}

template <class Numpy>
std::vector<Array> views(const std::vector<Numpy>& arrays) {
  std::vector<Array> out;
  out.reserve(arrays.size());
  for (const Numpy& array : arrays) out.push_back(view(array));
  return out;
}

/// A new NumPy array that owns the vector.
inline auto to_numpy(std::vector<int32_t> values, std::vector<size_t> shape) {
  auto* owned = new std::vector<int32_t>(std::move(values));
  nanobind::capsule owner(owned,
                          [](void* p) noexcept { delete static_cast<std::vector<int32_t>*>(p); });
  return nanobind::ndarray<nanobind::numpy, int32_t>(owned->data(), shape.size(), shape.data(),
                                                     owner);
}

inline auto to_numpy(std::vector<int32_t> values) {
  const size_t size = values.size();
  return to_numpy(std::move(values), {size});
}

}  // namespace jaxrec
