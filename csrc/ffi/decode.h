// From XLA's buffers and attributes to the core's types.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/array.h"
#include "core/status.h"
#include "xla/ffi/api/ffi.h"

namespace jaxrec {

inline bool decode_dtype(xla::ffi::DataType type, DType& out) {
  switch (type) {
    case xla::ffi::PRED: return out = DType::kBool, true;
    case xla::ffi::S8: return out = DType::kI8, true;
    case xla::ffi::S16: return out = DType::kI16, true;
    case xla::ffi::S32: return out = DType::kI32, true;
    case xla::ffi::S64: return out = DType::kI64, true;
    case xla::ffi::U8: return out = DType::kU8, true;
    case xla::ffi::U16: return out = DType::kU16, true;
    case xla::ffi::U32: return out = DType::kU32, true;
    case xla::ffi::U64: return out = DType::kU64, true;
    case xla::ffi::F32: return out = DType::kF32, true;
    case xla::ffi::F64: return out = DType::kF64, true;
    default: return false;
  }
}

inline Status decode_buffer(const xla::ffi::AnyBuffer& buffer, Array& out) {
  if (!decode_dtype(buffer.element_type(), out.dtype))
    return program_error("a buffer's element type is none that control values can have");
  out.data = buffer.untyped_data();
  out.dims = {buffer.dimensions().begin(), buffer.dimensions().size()};
  return {};
}

/// The program's words, which come as pairs of 32-bit halves: without x64 JAX has no others.
inline Status decode_words(const Array& halves, std::vector<int64_t>& out) {
  if (halves.rank() != 1 || halves.dtype != DType::kI32 || halves.size() % 2 != 0)
    return program_error("it should come as int32 [2 n]");
  out.resize(static_cast<size_t>(halves.size()) / 2);
  if (!out.empty()) std::memcpy(out.data(), halves.data, out.size() * sizeof(int64_t));
  return {};
}

/// Attributes by name, each left at its default if it is absent. Keeps the first fault.
class Attributes {
 public:
  explicit Attributes(const xla::ffi::Dictionary& attrs) : attrs_(attrs) {}

  template <class T>
  void span(std::string_view name, Span<const T>& out) {
    if (!attrs_.contains(name)) return;
    const auto value = attrs_.get<xla::ffi::Span<const T>>(name);
    if (value.has_value()) out = {value->begin(), value->size()};
    else fail(name, "a list");
  }

  void text(std::string_view name, std::string_view& out) {
    if (!attrs_.contains(name)) return;
    const auto value = attrs_.get<std::string_view>(name);
    if (value.has_value()) out = *value;
    else fail(name, "a text");
  }

  void number(std::string_view name, int64_t& out) {
    if (!attrs_.contains(name)) return;
    const auto value = attrs_.get<int64_t>(name);
    if (value.has_value()) out = *value;
    else fail(name, "an int64");
  }

  void flag(std::string_view name, bool& out) {
    int64_t value = out;
    number(name, value);
    out = value != 0;
  }

  const Status& status() const { return status_; }

 private:
  void fail(std::string_view name, const char* expected) {
    if (status_.ok())
      status_ = program_error("attribute '" + std::string(name) + "' should be " + expected);
  }

  const xla::ffi::Dictionary& attrs_;
  Status status_;
};

}  // namespace jaxrec
