#include <exception>

#include "core/rows.h"
#include "ffi/decode.h"
#include "ffi/handlers.h"

namespace jaxrec {
namespace {

namespace ffi = xla::ffi;
using Rows = ffi::BufferR1<ffi::S32>;

Span<const int32_t> view(const Rows& rows) { return {rows.typed_data(), rows.element_count()}; }

ffi::Error to_error(const Status& status) {
  return status.ok() ? ffi::Error::Success() : ffi::Error::Internal(status.text);
}

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

ffi::Error gather(ffi::AnyBuffer tape, Rows rows, ffi::Result<ffi::AnyBuffer> out) {
  int64_t tape_rows = 0, row_size = 0, out_rows = 0, out_size = 0;
  const bool fits = split(tape, tape_rows, row_size) && split(*out, out_rows, out_size) &&
                    row_size == out_size &&
                    out_rows == static_cast<int64_t>(rows.element_count()) &&
                    tape.element_type() == out->element_type();
  if (!fits || is_packed(tape.element_type()))
    return ffi::Error::InvalidArgument("the rows gathered are not rows of the tape");
  const int64_t bytes = row_size * static_cast<int64_t>(ffi::ByteWidth(tape.element_type()));
  return to_error(gather_rows(static_cast<const char*>(tape.untyped_data()), tape_rows, bytes,
                              view(rows), static_cast<char*>(out->untyped_data())));
}

ffi::Error sum(ffi::AnyBuffer tape, Rows readers, Rows pointers, ffi::Result<ffi::AnyBuffer> out) {
  int64_t tape_rows = 0, row_size = 0, out_rows = 0, out_size = 0;
  const bool fits = split(tape, tape_rows, row_size) && split(*out, out_rows, out_size) &&
                    row_size == out_size &&
                    out_rows + 1 == static_cast<int64_t>(pointers.element_count()) &&
                    tape.element_type() == out->element_type();
  if (!fits) return ffi::Error::InvalidArgument("the rows summed are not rows of the tape");
  if (tape.element_type() == ffi::F32)
    return to_error(sum_rows(tape.typed_data<float>(), tape_rows, row_size, view(readers),
                             view(pointers), out->typed_data<float>()));
  if (tape.element_type() == ffi::F64)
    return to_error(sum_rows(tape.typed_data<double>(), tape_rows, row_size, view(readers),
                             view(pointers), out->typed_data<double>()));
  return ffi::Error::InvalidArgument("cotangents of a type that is neither float32 nor float64");
}

}  // namespace
}  // namespace jaxrec

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_gather_rows, jaxrec::gather,
                              xla::ffi::Ffi::Bind()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Arg<jaxrec::Rows>()
                                  .Ret<xla::ffi::AnyBuffer>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_sum_rows, jaxrec::sum,
                              xla::ffi::Ffi::Bind()
                                  .Arg<xla::ffi::AnyBuffer>()
                                  .Arg<jaxrec::Rows>()
                                  .Arg<jaxrec::Rows>()
                                  .Ret<xla::ffi::AnyBuffer>());
