#include <algorithm>
#include <exception>

#include "core/rows.h"
#include "ffi/handlers.h"
#include "ffi/request.h"

namespace jaxrec {
namespace {

namespace ffi = xla::ffi;
using Rows = ffi::BufferR1<ffi::S32>;

Span<const int32_t> view(const Rows& rows) { return {rows.typed_data(), rows.element_count()}; }

// Whether several elements share a byte, so that a row need not begin at one.
bool is_packed(ffi::DataType type) {
  switch (type) {
    case ffi::S1:
    case ffi::S2:
    case ffi::S4:
    case ffi::U1:
    case ffi::U2:
    case ffi::U4:
    case ffi::F4E2M1FN: return true;
    default: return false;
  }
}

// Rows and elements of a row.
bool split(const ffi::AnyBuffer& buffer, int64_t& rows, int64_t& row_size) {
  if (buffer.dimensions().size() == 0) return false;
  rows = buffer.dimensions()[0];
  row_size = 1;
  for (size_t i = 1; i < buffer.dimensions().size(); ++i) row_size *= buffer.dimensions()[i];
  return true;
}

Status gather(ffi::AnyBuffer tape, Rows rows, ffi::Result<ffi::AnyBuffer> out) {
  int64_t tape_rows = 0, row_size = 0, out_rows = 0, out_size = 0;
  const bool fits = split(tape, tape_rows, row_size) && split(*out, out_rows, out_size) &&
                    row_size == out_size &&
                    out_rows == static_cast<int64_t>(rows.element_count()) &&
                    tape.element_type() == out->element_type();
  if (!fits || is_packed(tape.element_type()))
    return program_error("the rows gathered are not rows of the tape");
  const int64_t bytes = row_size * static_cast<int64_t>(ffi::ByteWidth(tape.element_type()));
  return gather_rows(static_cast<const char*>(tape.untyped_data()), tape_rows, bytes, view(rows),
                     static_cast<char*>(out->untyped_data()));
}

Status sum(ffi::AnyBuffer tape, Rows readers, Rows pointers, ffi::Result<ffi::AnyBuffer> out) {
  int64_t tape_rows = 0, row_size = 0, out_rows = 0, out_size = 0;
  const bool fits = split(tape, tape_rows, row_size) && split(*out, out_rows, out_size) &&
                    row_size == out_size &&
                    out_rows + 1 == static_cast<int64_t>(pointers.element_count()) &&
                    tape.element_type() == out->element_type();
  if (!fits) return program_error("the rows summed are not rows of the tape");
  if (tape.element_type() == ffi::F32)
    return sum_rows(tape.typed_data<float>(), tape_rows, row_size, view(readers), view(pointers),
                    out->typed_data<float>());
  if (tape.element_type() == ffi::F64)
    return sum_rows(tape.typed_data<double>(), tape_rows, row_size, view(readers), view(pointers),
                    out->typed_data<double>());
  return program_error("cotangents of a type that is neither float32 nor float64");
}

Status copy_after(Rows numbers, ffi::RemainingArgs, ffi::Result<ffi::BufferR1<ffi::S32>> out) {
  if (out->element_count() != numbers.element_count())
    return program_error("the numbers that come after are not as many");
  std::copy_n(numbers.typed_data(), numbers.element_count(), out->typed_data());
  return {};
}

ffi::Error gather_impl(ffi::AnyBuffer tape, Rows rows, ffi::Result<ffi::AnyBuffer> out) {
  return handle([&] { return gather(tape, rows, out); });
}

ffi::Error sum_impl(ffi::AnyBuffer tape, Rows readers, Rows pointers,
                    ffi::Result<ffi::AnyBuffer> out) {
  return handle([&] { return sum(tape, readers, pointers, out); });
}

ffi::Error after_impl(Rows numbers, ffi::RemainingArgs reads,
                      ffi::Result<ffi::BufferR1<ffi::S32>> out) {
  return handle([&] { return copy_after(numbers, reads, out); });
}

}  // namespace
}  // namespace jaxrec

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_gather_rows, jaxrec::gather_impl,
                              xla::ffi::Ffi::Bind()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Arg<jaxrec::Rows>()
                                  .Ret<xla::ffi::AnyBuffer>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_sum_rows, jaxrec::sum_impl,
                              xla::ffi::Ffi::Bind()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Arg<jaxrec::Rows>()
                                  .Arg<jaxrec::Rows>()
                                  .Ret<xla::ffi::AnyBuffer>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_after, jaxrec::after_impl,
                              xla::ffi::Ffi::Bind()
                                  .Arg<jaxrec::Rows>()
                                  .RemainingArgs()
                                  .Ret<xla::ffi::BufferR1<xla::ffi::S32>>());
