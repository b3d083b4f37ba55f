// The handler that makes buffers without writing them.
#include "ffi/handlers.h"
#include "xla/ffi/api/ffi.h"

namespace jaxrec {
namespace {

xla::ffi::Error allocate_impl(xla::ffi::RemainingRets) { return xla::ffi::Error::Success(); }

}  // namespace
}  // namespace jaxrec

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_allocate, jaxrec::allocate_impl,
                              xla::ffi::Ffi::Bind().RemainingRets());
