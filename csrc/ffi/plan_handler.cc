#include "core/fill.h"
#include "core/plan.h"
#include "ffi/handlers.h"
#include "ffi/request.h"

namespace jaxrec {
namespace {

namespace ffi = xla::ffi;

Status run(const ffi::RemainingArgs& args, const ffi::RemainingRets& rets,
           const ffi::Dictionary& attrs) {
  PlanCall call;
  if (Status status = decode_attributes(attrs, call); !status.ok()) return status;
  if (Status status = decode_arguments(args, call); !status.ok()) return status;
  if (Status status = decode_results(rets, call.buffers); !status.ok()) return status;
  Schedule schedule;
  if (Status status = plan(call.request, schedule); !status.ok()) return status;
  return fill(schedule, call.buffers, {call.capacity, call.readers});
}

ffi::Error plan_impl(ffi::RemainingArgs args, ffi::RemainingRets rets, ffi::Dictionary attrs) {
  return handle([&] { return run(args, rets, attrs); });
}

}  // namespace
}  // namespace jaxrec

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_plan, jaxrec::plan_impl,
                              xla::ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());
