#include "core/fill.h"
#include "core/plan.h"
#include "ffi/handlers.h"
#include "ffi/memory.h"
#include "ffi/plans.h"
#include "ffi/request.h"

namespace jaxrec {

xla::ffi::TypeId Plans::id = {};
const xla::ffi::TypeInfo Plans::info = xla::ffi::MakeTypeInfo<Plans>();
xla::ffi::TypeId CudaPlans::id = {};
const xla::ffi::TypeInfo CudaPlans::info = xla::ffi::MakeTypeInfo<CudaPlans>();

namespace {

namespace ffi = xla::ffi;

// Plans, and writes the tables; `written`: how many elements of each.
Status write_tables(PlanCall& call, const std::vector<Array>& arrays,
                    std::vector<int64_t>& written) {
  if (Status status = decode_arguments(arrays, call); !status.ok()) return status;
  Schedule schedule;
  if (Status status = plan(call.request, schedule); !status.ok()) return status;
  return fill(schedule, call.buffers, {call.capacity, call.readers, &written});
}

Status run(KeptTables& kept, Staging& staging, const ffi::RemainingArgs& args,
           const ffi::RemainingRets& rets, const ffi::Dictionary& attrs) {
  PlanCall call;
  std::vector<Array> arrays;
  std::vector<int64_t> written;
  if (Status status = decode_attributes(attrs, call); !status.ok()) return status;
  if (Status status = decode_arrays(args, 0, arrays); !status.ok()) return status;
  if (Status status = decode_results(rets, call.buffers); !status.ok()) return status;
  if (Status status = staging.read(arrays); !status.ok()) return status;
  staging.write(call.buffers);
  if (!kept.write(arrays, call.buffers, written)) {
    if (Status status = write_tables(call, arrays, written); !status.ok()) return status;
    kept.note(arrays, call.buffers, written);
  }
  return staging.flush(&written);
}

template <class Kind>
ffi::Error plan_impl(Kind* kept, Staging staging, ffi::RemainingArgs args, ffi::RemainingRets rets,
                     ffi::Dictionary attrs) {
  return handle([&] { return run(*kept, staging, args, rets, attrs); });
}

template <class Kind, class Memory>
auto bind_plan() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::State<Kind>>()
      .template Ctx<Memory>()
      .RemainingArgs()
      .RemainingRets()
      .Attrs();
}

}  // namespace
}  // namespace jaxrec

using jaxrec::CudaPlans;
using jaxrec::OnCuda;
using jaxrec::OnHost;
using jaxrec::Plans;

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_plan_instantiate, jaxrec::make_state<Plans>,
                              xla::ffi::Ffi::BindInstantiate());
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_plan, jaxrec::plan_impl<Plans>,
                              (jaxrec::bind_plan<Plans, OnHost>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_plan_instantiate_cuda, jaxrec::make_state<CudaPlans>,
                              xla::ffi::Ffi::BindInstantiate());
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_plan_cuda, jaxrec::plan_impl<CudaPlans>,
                              (jaxrec::bind_plan<CudaPlans, OnCuda>()));
