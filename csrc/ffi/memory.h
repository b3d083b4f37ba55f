// Where the arrays of a handler lie: what tells a handler for CPU from the same one for a GPU.
#pragma once

#include <optional>

#include "core/staging.h"
#include "xla/ffi/api/ffi.h"

namespace jaxrec {

/// Contexts of handlers: both give a `Staging`.
struct OnHost {};
struct OnCuda {};

/// Copies by NVIDIA's driver, which is looked for once; null where there is none.
const CopyEngine* cuda_engine();

}  // namespace jaxrec

namespace xla::ffi {

template <>
struct CtxDecoding<jaxrec::OnHost> {
  using Type = jaxrec::Staging;

  static std::optional<Type> Decode(const XLA_FFI_Api*, XLA_FFI_ExecutionContext*,
                                    DiagnosticEngine&) {
    return jaxrec::Staging();
  }
};

template <>
struct CtxDecoding<jaxrec::OnCuda> {
  using Type = jaxrec::Staging;

  static std::optional<Type> Decode(const XLA_FFI_Api* api, XLA_FFI_ExecutionContext* context,
                                    DiagnosticEngine& diagnostic) {
    const auto stream = CtxDecoding<PlatformStream<void*>>::Decode(api, context, diagnostic);
    if (!stream.has_value()) return std::nullopt;
    const jaxrec::CopyEngine* engine = jaxrec::cuda_engine();
    if (engine != nullptr) return jaxrec::Staging(engine, *stream);
    diagnostic.Emit("JaxRecError: NVIDIA's driver, libcuda.so.1, was not found");
    return std::nullopt;
  }
};

}  // namespace xla::ffi
