#include "core/threefry.h"
#include "ffi/handlers.h"
#include "ffi/request.h"

namespace jaxrec {
namespace {

namespace ffi = xla::ffi;
using Words = ffi::BufferR1<ffi::U32>;
using Blocks = ffi::BufferR2<ffi::U32>;

ffi::Error random_impl(Blocks keys, Words first, ffi::Result<Blocks> high,
                       ffi::Result<Blocks> low) {
  return handle([&]() -> Status {
    const int64_t num_keys = keys.dimensions()[0], count = high->dimensions()[1];
    const bool fits = keys.dimensions()[1] == 2 &&
                      static_cast<int64_t>(first.element_count()) == num_keys &&
                      high->dimensions()[0] == num_keys && low->dimensions()[0] == num_keys &&
                      low->dimensions()[1] == count;
    if (!fits) return program_error("random words for other keys than there are");
    threefry(keys.typed_data(), first.typed_data(), num_keys, count, high->typed_data(),
             low->typed_data());
    return {};
  });
}

}  // namespace
}  // namespace jaxrec

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_random, jaxrec::random_impl,
                              xla::ffi::Ffi::Bind()
                                  .Arg<jaxrec::Blocks>()
                                  .Arg<jaxrec::Words>()
                                  .Ret<jaxrec::Blocks>()
                                  .Ret<jaxrec::Blocks>());
