// The handlers of a stepped invocation: begin, then for each wave step and operands, then end.
//
// The session lives from `begin` to `end`. Its address travels through the program as an array, so
// that invocations which run at the same time do not meet. Each handler takes a result of the one
// before it, which keeps them in order. A handler that fails ends the session itself: the program
// stops there. Sessions belong to the compiled program (`ffi/sessions.h`), which frees those that
// it is stopped before the end of.
#include <cstring>
#include <memory>
#include <utility>

#include "core/fill.h"
#include "core/stepper.h"
#include "ffi/handlers.h"
#include "ffi/request.h"
#include "ffi/sessions.h"

namespace jaxrec {
namespace {

namespace ffi = xla::ffi;

static_assert(sizeof(Session*) == 2 * sizeof(int32_t), "an address is two 32-bit integers");

// The first argument of all handlers but `begin`; the second only keeps them in order.
Status to_session(const ffi::RemainingArgs& args, Session*& out) {
  const auto handle = args.get<ffi::AnyBuffer>(0);
  if (args.size() < 2 || !handle.has_value()) return program_error("too few arguments");
  if (handle->element_type() != ffi::S32 || handle->element_count() != 2)
    return program_error("a stepper's handle is int32 [2]");
  std::memcpy(&out, handle->untyped_data(), sizeof(out));
  if (out == nullptr) return program_error("a stepper's handle is empty");
  return {};
}

struct End {
  void operator()(Session* session) const { Sessions::end(session); }
};

// Ends the session on failure.
Status or_end(Session* session, Status status) {
  if (!status.ok()) Sessions::end(session);
  return status;
}

Status begin(Sessions& sessions, int64_t run, const ffi::RemainingArgs& args,
             const ffi::RemainingRets& rets, const ffi::Dictionary& attrs) {
  PlanCall call;
  if (Status status = decode_attributes(attrs, call); !status.ok()) return status;
  if (Status status = decode_arguments(args, call); !status.ok()) return status;
  if (Status status = decode_results(rets, call.buffers); !status.ok()) return status;
  if (call.buffers.size() != 1 || call.buffers[0].dtype != DType::kI32 ||
      call.buffers[0].size() != 2)
    return program_error("a stepper's handle is int32 [2]");
  std::unique_ptr<Stepper> stepper;
  if (Status status = Stepper::start(call.request, {call.capacity, call.cell_capacity}, stepper);
      !status.ok())
    return status;
  const Array& handle = call.buffers[0];
  const Session* session = sessions.begin(std::move(stepper), handle.data, run);
  std::memcpy(handle.data, &session, sizeof(session));
  return {};
}

// Arguments: the handle, anything that must come before, then the tapes.
Status step(const ffi::RemainingArgs& args, const ffi::RemainingRets& rets) {
  Session* session = nullptr;
  if (Status status = to_session(args, session); !status.ok()) return status;
  std::vector<Array>& tapes = session->arguments;
  std::vector<Array>& results = session->results;
  if (Status status = decode_arrays(args, 2, tapes); !status.ok())
    return or_end(session, std::move(status));
  if (Status status = decode_results(rets, results); !status.ok())
    return or_end(session, std::move(status));
  if (results.size() != 1 || results[0].dtype != DType::kI32)
    return or_end(session, program_error("a wave is int32"));
  if (Status status = session->stepper->step(tapes); !status.ok())
    return or_end(session, std::move(status));
  return or_end(session, session->stepper->write_wave(
                             {results[0].as<int32_t>(), static_cast<size_t>(results[0].size())}));
}

// Arguments: the handle and the wave.
Status operands(const ffi::RemainingArgs& args, const ffi::RemainingRets& rets) {
  Session* session = nullptr;
  if (Status status = to_session(args, session); !status.ok()) return status;
  if (Status status = decode_results(rets, session->results); !status.ok())
    return or_end(session, std::move(status));
  return or_end(session, session->stepper->write_operands(session->results));
}

// Arguments: the handle and the last wave, which is none.
Status results(const ffi::RemainingArgs& args, const ffi::RemainingRets& rets) {
  Session* address = nullptr;
  if (Status status = to_session(args, address); !status.ok()) return status;
  const std::unique_ptr<Session, End> session(address);
  if (Status status = decode_results(rets, session->results); !status.ok()) return status;
  return session->stepper->write_results(session->results);
}

// Arguments: the handle and the last wave, which is none.
Status end(const ffi::RemainingArgs& args, const ffi::RemainingRets& rets,
           const ffi::Dictionary& attrs) {
  PlanCall call;
  Session* address = nullptr;
  if (Status status = to_session(args, address); !status.ok()) return status;
  const std::unique_ptr<Session, End> session(address);
  if (Status status = decode_attributes(attrs, call); !status.ok()) return status;
  if (Status status = decode_results(rets, call.buffers); !status.ok()) return status;
  Schedule schedule;
  if (Status status = session->stepper->finish(schedule); !status.ok()) return status;
  return fill(schedule, call.buffers, {call.capacity, call.readers});
}

ffi::ErrorOr<std::unique_ptr<Sessions>> instantiate_impl() { return std::make_unique<Sessions>(); }
ffi::Error begin_impl(Sessions* sessions, ffi::RunId run, ffi::RemainingArgs args,
                      ffi::RemainingRets rets, ffi::Dictionary attrs) {
  return handle([&] { return begin(*sessions, run.run_id, args, rets, attrs); });
}
ffi::Error step_impl(ffi::RemainingArgs args, ffi::RemainingRets rets) {
  return handle([&] { return step(args, rets); });
}
ffi::Error operands_impl(ffi::RemainingArgs args, ffi::RemainingRets rets) {
  return handle([&] { return operands(args, rets); });
}
ffi::Error results_impl(ffi::RemainingArgs args, ffi::RemainingRets rets) {
  return handle([&] { return results(args, rets); });
}
ffi::Error end_impl(ffi::RemainingArgs args, ffi::RemainingRets rets, ffi::Dictionary attrs) {
  return handle([&] { return end(args, rets, attrs); });
}

}  // namespace
}  // namespace jaxrec

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_step_instantiate, jaxrec::instantiate_impl,
                              xla::ffi::Ffi::BindInstantiate());
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_step_begin, jaxrec::begin_impl,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::State<jaxrec::Sessions>>()
                                  .Ctx<xla::ffi::RunId>()
                                  .RemainingArgs()
                                  .RemainingRets()
                                  .Attrs());
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_step, jaxrec::step_impl,
                              xla::ffi::Ffi::Bind().RemainingArgs().RemainingRets());
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_step_operands, jaxrec::operands_impl,
                              xla::ffi::Ffi::Bind().RemainingArgs().RemainingRets());
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_step_results, jaxrec::results_impl,
                              xla::ffi::Ffi::Bind().RemainingArgs().RemainingRets());
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_step_end, jaxrec::end_impl,
                              xla::ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());
