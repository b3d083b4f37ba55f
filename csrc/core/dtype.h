// The element types of control values, and the type-to-code mapping used everywhere.
#pragma once

#include <cstddef>
#include <cstdint>

namespace jaxrec {

/// Codes as they stand in an encoded program.
enum class DType : uint8_t { kBool, kI8, kI16, kI32, kI64, kU8, kU16, kU32, kU64, kF32, kF64 };
inline constexpr int kNumDTypes = 11;

/// Bytes of one element.
inline constexpr size_t byte_width(DType dtype) {
  constexpr uint8_t kWidths[kNumDTypes] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8};
  return kWidths[static_cast<int>(dtype)];
}

inline constexpr bool is_float(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64; }

/// NumPy's name of the type, for messages.
inline constexpr const char* dtype_name(DType dtype) {
  constexpr const char* kNames[kNumDTypes] = {"bool",   "int8",    "int16",  "int32",
                                              "int64",  "uint8",   "uint16", "uint32",
                                              "uint64", "float32", "float64"};
  return kNames[static_cast<int>(dtype)];
}

/// Carries a C++ type as a value, so that a generic lambda can receive it.
template <class T>
struct TypeTag {
  using type = T;
};

/// Calls `visit(TypeTag<T>{})` with the C++ type of `dtype`.
template <class Visitor>
auto with_type(DType dtype, Visitor&& visit) {
  switch (dtype) {
    case DType::kBool: return visit(TypeTag<bool>{});
    case DType::kI8: return visit(TypeTag<int8_t>{});
    case DType::kI16: return visit(TypeTag<int16_t>{});
    case DType::kI32: return visit(TypeTag<int32_t>{});
    case DType::kI64: return visit(TypeTag<int64_t>{});
    case DType::kU8: return visit(TypeTag<uint8_t>{});
    case DType::kU16: return visit(TypeTag<uint16_t>{});
    case DType::kU32: return visit(TypeTag<uint32_t>{});
    case DType::kU64: return visit(TypeTag<uint64_t>{});
    case DType::kF32: return visit(TypeTag<float>{});
    default: return visit(TypeTag<double>{});
  }
}

}  // namespace jaxrec
