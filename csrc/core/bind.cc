#include "core/bind.h"

#include <algorithm>

namespace jaxrec {
namespace {

Status bind_outer(const OuterType& type, const Array& array, int64_t stride, int64_t size,
                  int64_t lanes, Outer& out) {
  const bool batched = size >= 0;
  if (array.dtype != type.dtype || array.rank() != type.rank + batched)
    return program_error("an outer array is " + describe(array) + ", expected " +
                         dtype_name(type.dtype) + " of rank " +
                         std::to_string(type.rank + batched));
  const bool fits = array.dims.size() > 0 && array.dims[0] == size;
  const bool is_read = lanes > 0;  // else there may be an axis of no lanes
  if (batched && (!fits || (is_read && (stride < 1 || size < 1))))
    return program_error("an outer array's lanes (stride " + std::to_string(stride) + ", size " +
                         std::to_string(size) + ") do not fit " + describe(array));
  out.array = array;
  out.load = load_fn(array.dtype);
  out.lane_stride = std::max<int64_t>(stride, 1);
  out.lane_size = batched ? size : 0;
  out.dims = Span<const int64_t>(array.dims.begin() + batched, array.dims.size() - batched);
  out.elements = 1;
  for (int64_t dim : out.dims) out.elements *= dim;
  return {};
}

}  // namespace

std::string describe(const Array& array) {
  std::string out = std::string(dtype_name(array.dtype)) + "[";
  for (size_t i = 0; i < array.dims.size(); ++i)
    out += (i ? "," : "") + std::to_string(array.dims[i]);
  return out + "]";
}

Status bind_outers(const std::vector<OuterType>& types, const std::vector<Array>& arrays,
                   Span<const int64_t> numbers, int64_t lanes, std::vector<Outer>& out) {
  const size_t n = types.size();
  if (arrays.size() != n || numbers.size() != 2 * n)
    return program_error("got " + std::to_string(arrays.size()) + " outer arrays with " +
                         std::to_string(numbers.size()) + " lane numbers, expected " +
                         std::to_string(n) + " with two each");
  out.resize(n);
  for (size_t i = 0; i < n; ++i) {
    Status status =
        bind_outer(types[i], arrays[i], numbers[2 * i], numbers[2 * i + 1], lanes, out[i]);
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace jaxrec
