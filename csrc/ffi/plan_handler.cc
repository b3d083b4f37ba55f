#include "core/fill.h"
#include "core/plan.h"
#include "ffi/handlers.h"
#include "ffi/memory.h"
#include "ffi/request.h"

namespace jaxrec {
namespace {

namespace ffi = xla::ffi;

Status run(Staging& staging, const ffi::RemainingArgs& args, const ffi::RemainingRets& rets,
           const ffi::Dictionary& attrs) {
  PlanCall call;
  if (Status status = decode_attributes(attrs, call); !status.ok()) return status;
  if (Status status = decode_arguments(args, staging, call); !status.ok()) return status;
  if (Status status = decode_results(rets, call.buffers); !status.ok()) return status;
  Schedule schedule;
  if (Status status = plan(call.request, schedule); !status.ok()) return status;
  staging.write(call.buffers);
  Status status = fill(schedule, call.buffers, {call.capacity, call.readers});
  return status.ok() ? staging.flush() : status;
}

ffi::Error plan_impl(Staging staging, ffi::RemainingArgs args, ffi::RemainingRets rets,
                     ffi::Dictionary attrs) {
  return handle([&] { return run(staging, args, rets, attrs); });
}

template <class Memory>
auto bind_plan() {
  return ffi::Ffi::Bind().Ctx<Memory>().RemainingArgs().RemainingRets().Attrs();
}

}  // namespace
}  // namespace jaxrec

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_plan, jaxrec::plan_impl, jaxrec::bind_plan<jaxrec::OnHost>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_plan_cuda, jaxrec::plan_impl,
                              jaxrec::bind_plan<jaxrec::OnCuda>());
