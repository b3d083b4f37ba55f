#include "core/native_run.h"
#include "ffi/handlers.h"
#include "ffi/memory.h"
#include "ffi/request.h"

namespace jaxrec {
namespace {

namespace ffi = xla::ffi;

Status run(Staging& staging, const ffi::RemainingArgs& args, const ffi::RemainingRets& rets,
           const ffi::Dictionary& dictionary) {
  native::Request request;
  Attributes attrs(dictionary);
  attrs.number("lanes", request.lanes);
  attrs.text("names", request.names);
  attrs.span("outer_lanes", request.outer_lanes);
  attrs.number("max_calls", request.max_calls);
  attrs.number("rows", request.rows);
  attrs.number("depth_limit", request.depth_limit);
  attrs.number("call_limit", request.call_limit);
  attrs.number("workers", request.workers);
  if (!attrs.status().ok()) return attrs.status();
  std::vector<Array> arrays;
  if (Status status = decode_arrays(args, 0, arrays); !status.ok()) return status;
  if (Status status = staging.read(arrays); !status.ok()) return status;
  std::vector<int64_t> program;
  Status status =
      decode_arguments(arrays, request.outer_lanes, program, request.roots, request.outers);
  if (status.ok()) status = decode_results(rets, request.results);
  if (!status.ok()) return status;
  staging.write(request.results);
  status = native::run(program, request);
  return status.ok() ? staging.flush() : status;
}

ffi::Error native_impl(Staging staging, ffi::RemainingArgs args, ffi::RemainingRets rets,
                       ffi::Dictionary attrs) {
  return handle([&] { return run(staging, args, rets, attrs); });
}

template <class Memory>
auto bind_native() {
  return ffi::Ffi::Bind().Ctx<Memory>().RemainingArgs().RemainingRets().Attrs();
}

}  // namespace
}  // namespace jaxrec

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_native, jaxrec::native_impl,
                              jaxrec::bind_native<jaxrec::OnHost>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_native_cuda, jaxrec::native_impl,
                              jaxrec::bind_native<jaxrec::OnCuda>());
