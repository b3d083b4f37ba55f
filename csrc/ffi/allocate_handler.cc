// The handler that makes buffers without writing them.
#include "core/pages.h"
#include "ffi/handlers.h"
#include "xla/ffi/api/ffi.h"

namespace jaxrec {
namespace {

xla::ffi::Error allocate_impl(xla::ffi::RemainingRets buffers) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    auto buffer = buffers.get<xla::ffi::AnyBuffer>(i);
    if (buffer.has_error()) return buffer.error();
    use_large_pages((*buffer)->untyped_data(), (*buffer)->size_bytes());
  }
  return xla::ffi::Error::Success();
}

}  // namespace
}  // namespace jaxrec

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_allocate, jaxrec::allocate_impl,
                              xla::ffi::Ffi::Bind().RemainingRets());
