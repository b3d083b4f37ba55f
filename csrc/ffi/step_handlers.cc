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
#include "ffi/memory.h"
#include "ffi/request.h"
#include "ffi/sessions.h"

namespace jaxrec {
namespace {

namespace ffi = xla::ffi;

static_assert(sizeof(Session*) == 2 * sizeof(int32_t), "an address is two 32-bit integers");

bool is_handle(const Array& array) { return array.dtype == DType::kI32 && array.size() == 2; }

// The first argument of all handlers but `begin`; the second only keeps them in order.
Status to_session(Staging& staging, const ffi::RemainingArgs& args, Session*& out) {
  const auto first = args.get<ffi::AnyBuffer>(0);
  if (args.size() < 2 || !first.has_value()) return program_error("too few arguments");
  Array handle;
  if (Status status = decode_buffer(*first, handle); !status.ok()) return status;
  if (!is_handle(handle)) return program_error("a stepper's handle is int32 [2]");
  if (Status status = staging.read(handle); !status.ok()) return status;
  std::memcpy(&out, handle.data, sizeof(out));
  if (out == nullptr) return program_error("a stepper's handle is empty");
  return {};
}

struct End {
  void operator()(Session* session) const { Sessions::end(session); }
};

// Does a part of a session's work, which ends with it on failure.
template <class Work>
ffi::Error in_session(Staging& staging, const ffi::RemainingArgs& args, Work&& work) {
  return handle([&]() -> Status {
    Session* session = nullptr;
    if (Status status = to_session(staging, args, session); !status.ok()) return status;
    Status status = guarded([&] { return work(*session); });
    if (!status.ok()) Sessions::end(session);
    return status;
  });
}

// Does the last part of a session's work.
template <class Work>
ffi::Error at_end_of_session(Staging& staging, const ffi::RemainingArgs& args, Work&& work) {
  return handle([&]() -> Status {
    Session* address = nullptr;
    if (Status status = to_session(staging, args, address); !status.ok()) return status;
    const std::unique_ptr<Session, End> session(address);
    return work(*session);
  });
}

Status begin(Sessions& sessions, int64_t run, Staging& staging, const ffi::RemainingArgs& args,
             const ffi::RemainingRets& rets, const ffi::Dictionary& attrs) {
  PlanCall call;
  if (Status status = decode_attributes(attrs, call); !status.ok()) return status;
  std::vector<Array> arrays;
  if (Status status = decode_arrays(args, 0, arrays); !status.ok()) return status;
  if (Status status = staging.read(arrays); !status.ok()) return status;
  if (Status status = decode_arguments(arrays, call); !status.ok()) return status;
  if (Status status = decode_results(rets, call.buffers); !status.ok()) return status;
  if (call.buffers.size() != 1 || !is_handle(call.buffers[0]))
    return program_error("a stepper's handle is int32 [2]");
  std::unique_ptr<Stepper> stepper;
  if (Status status = Stepper::start(call.request, {call.capacity, call.cell_capacity}, stepper);
      !status.ok())
    return status;
  const Session* session = sessions.begin(std::move(stepper), call.buffers[0].data, run);
  staging.write(call.buffers);
  std::memcpy(call.buffers[0].data, &session, sizeof(session));
  return staging.flush();
}

// The next wave of a session, or all of its next sweep.
Status step(Session& session, Staging& staging, const ffi::RemainingArgs& args,
            const ffi::RemainingRets& rets) {
  Stepper& stepper = *session.stepper;
  std::vector<Array>& tapes = session.arguments;
  std::vector<Array>& results = session.results;
  if (Status status = decode_arrays(args, 2, tapes); !status.ok()) return status;
  if (Status status = decode_results(rets, results); !status.ok()) return status;
  if (results.size() != 1 || results[0].dtype != DType::kI32)
    return program_error("a wave is int32");
  if (staging.copies()) {
    Status status = session.mirror.update(staging, stepper.rows_made(), tapes);
    if (!status.ok()) return status;
  }
  if (Status status = stepper.step(tapes); !status.ok()) return status;
  staging.write(results);
  const Span<int32_t> out{results[0].as<int32_t>(), static_cast<size_t>(results[0].size())};
  Status status = stepper.sweeps() ? stepper.write_sweep(out) : stepper.write_wave(0, out);
  return status.ok() ? staging.flush() : status;
}

// What the wave of a session reads.
Status operands(Session& session, Staging& staging, const ffi::RemainingRets& rets) {
  if (Status status = decode_results(rets, session.results); !status.ok()) return status;
  staging.write(session.results);
  Status status = session.stepper->write_operands(0, session.results);
  return status.ok() ? staging.flush() : status;
}

// The rows of a session's results.
Status results(Session& session, Staging& staging, const ffi::RemainingRets& rets) {
  if (Status status = decode_results(rets, session.results); !status.ok()) return status;
  staging.write(session.results);
  Status status = session.stepper->write_results(session.results);
  return status.ok() ? staging.flush() : status;
}

// The schedule of a session.
Status end(Session& session, Staging& staging, const ffi::RemainingRets& rets,
           const ffi::Dictionary& attrs) {
  PlanCall call;
  if (Status status = decode_attributes(attrs, call); !status.ok()) return status;
  if (Status status = decode_results(rets, call.buffers); !status.ok()) return status;
  Schedule schedule;
  if (Status status = session.stepper->finish(schedule); !status.ok()) return status;
  staging.write(call.buffers);
  std::vector<int64_t> written;
  Status status = fill(schedule, call.buffers, {call.capacity, call.readers, &written, call.waves});
  return status.ok() ? staging.flush(&written) : status;
}

// Arguments: the handle, anything that must come before, then the tapes.
ffi::Error step_impl(Staging staging, ffi::RemainingArgs args, ffi::RemainingRets rets) {
  return in_session(staging, args,
                    [&](Session& session) { return step(session, staging, args, rets); });
}

// Arguments: the handle and the wave.
ffi::Error operands_impl(Staging staging, ffi::RemainingArgs args, ffi::RemainingRets rets) {
  return in_session(staging, args,
                    [&](Session& session) { return operands(session, staging, rets); });
}

// Arguments: the handle and the last wave, which is none.
ffi::Error results_impl(Staging staging, ffi::RemainingArgs args, ffi::RemainingRets rets) {
  return at_end_of_session(staging, args,
                           [&](Session& session) { return results(session, staging, rets); });
}

// Arguments: the handle and the last wave, which is none.
ffi::Error end_impl(Staging staging, ffi::RemainingArgs args, ffi::RemainingRets rets,
                    ffi::Dictionary attrs) {
  return at_end_of_session(staging, args,
                           [&](Session& session) { return end(session, staging, rets, attrs); });
}

template <class Kind>
ffi::Error begin_impl(Kind* sessions, ffi::RunId run, Staging staging, ffi::RemainingArgs args,
                      ffi::RemainingRets rets, ffi::Dictionary attrs) {
  return handle([&] { return begin(*sessions, run.run_id, staging, args, rets, attrs); });
}

template <class Kind, class Memory>
auto bind_begin() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::State<Kind>>()
      .template Ctx<ffi::RunId>()
      .template Ctx<Memory>()
      .RemainingArgs()
      .RemainingRets()
      .Attrs();
}

template <class Memory>
auto bind_step() {
  return ffi::Ffi::Bind().Ctx<Memory>().RemainingArgs().RemainingRets();
}

template <class Memory>
auto bind_end() {
  return bind_step<Memory>().Attrs();
}

}  // namespace
}  // namespace jaxrec

using jaxrec::CudaSessions;
using jaxrec::OnCuda;
using jaxrec::OnHost;
using jaxrec::Sessions;

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_step_instantiate, jaxrec::make_state<Sessions>,
                              xla::ffi::Ffi::BindInstantiate());
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_step_begin, jaxrec::begin_impl<Sessions>,
                              (jaxrec::bind_begin<Sessions, OnHost>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_step, jaxrec::step_impl, jaxrec::bind_step<OnHost>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_step_operands, jaxrec::operands_impl,
                              jaxrec::bind_step<OnHost>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_step_results, jaxrec::results_impl,
                              jaxrec::bind_step<OnHost>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_step_end, jaxrec::end_impl, jaxrec::bind_end<OnHost>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_step_instantiate_cuda, jaxrec::make_state<CudaSessions>,
                              xla::ffi::Ffi::BindInstantiate());
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_step_begin_cuda, jaxrec::begin_impl<CudaSessions>,
                              (jaxrec::bind_begin<CudaSessions, OnCuda>()));
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_step_cuda, jaxrec::step_impl, jaxrec::bind_step<OnCuda>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_step_operands_cuda, jaxrec::operands_impl,
                              jaxrec::bind_step<OnCuda>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_step_results_cuda, jaxrec::results_impl,
                              jaxrec::bind_step<OnCuda>());
XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_step_end_cuda, jaxrec::end_impl, jaxrec::bind_end<OnCuda>());
