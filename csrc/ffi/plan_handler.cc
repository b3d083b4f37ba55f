#include <exception>
#include <utility>

#include "core/fill.h"
#include "core/plan.h"
#include "ffi/decode.h"
#include "ffi/handlers.h"

namespace jaxrec {
namespace {

namespace ffi = xla::ffi;

/// Everything of one call, decoded.
struct PlanCall {
  Request request;
  std::vector<int64_t> words;  // of a program that came in halves
  std::vector<Array> buffers;
  Span<const int64_t> capacity;
  bool readers = true;
};

Status decode_attributes(const ffi::Dictionary& dictionary, PlanCall& call) {
  Attributes attrs(dictionary);
  Request& request = call.request;
  attrs.number("lanes", request.lanes);
  attrs.span("widths", request.widths);
  attrs.span("costs", request.costs);
  attrs.text("names", request.names);
  attrs.span("outer_lanes", request.outer_lanes);
  attrs.number("max_calls", request.max_calls);
  attrs.number("call_limit", request.call_limit);
  attrs.number("depth_limit", request.depth_limit);
  attrs.flag("collect", request.collect);
  attrs.flag("readers", call.readers);
  attrs.number("workers", request.workers);
  attrs.span("capacity", call.capacity);
  return attrs.status();
}

// The outer arrays are the last arguments, two lane numbers each; what stands before them is roots.
Status decode_arguments(const ffi::RemainingArgs& args, PlanCall& call) {
  const size_t num_outers = call.request.outer_lanes.size() / 2;
  if (args.size() < 1 + num_outers) return program_error("too few arguments");
  for (size_t i = 0; i < args.size(); ++i) {
    Array array;
    const auto buffer = args.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return program_error(buffer.error().message());
    Status status = decode_buffer(*buffer, array);
    if (status.ok() && i == 0) status = decode_words(array, call.words, call.request.program);
    if (!status.ok()) return status;
    if (i > 0)
      (i < args.size() - num_outers ? call.request.roots : call.request.outers).push_back(array);
  }
  return {};
}

Status decode_results(const ffi::RemainingRets& rets, PlanCall& call) {
  for (size_t i = 0; i < rets.size(); ++i) {
    auto buffer = rets.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return program_error(buffer.error().message());
    Status status = decode_buffer(**buffer, call.buffers.emplace_back());
    if (!status.ok()) return status;
  }
  return {};
}

Status run(const ffi::RemainingArgs& args, const ffi::RemainingRets& rets,
           const ffi::Dictionary& attrs) {
  PlanCall call;
  if (Status status = decode_attributes(attrs, call); !status.ok()) return status;
  if (Status status = decode_arguments(args, call); !status.ok()) return status;
  if (Status status = decode_results(rets, call); !status.ok()) return status;
  Schedule schedule;
  if (Status status = plan(call.request, schedule); !status.ok()) return status;
  return fill(schedule, call.buffers, {call.capacity, call.readers});
}

ffi::ErrorCode error_code(Code code) {
  switch (code) {
    case Code::kCapacity:
    case Code::kRecursionLimit: return ffi::ErrorCode::kResourceExhausted;
    case Code::kIndex: return ffi::ErrorCode::kOutOfRange;
    case Code::kProgram: return ffi::ErrorCode::kInvalidArgument;
    default: return ffi::ErrorCode::kInternal;
  }
}

ffi::Error plan_impl(ffi::RemainingArgs args, ffi::RemainingRets rets, ffi::Dictionary attrs) {
  try {
    Status status = run(args, rets, attrs);
    if (status.ok()) return ffi::Error::Success();
    return ffi::Error(error_code(status.code), std::move(status.text));
  } catch (const std::exception& error) {  // nothing may be thrown through XLA
    return ffi::Error::Internal(internal_error(error.what()).text);
  }
}

}  // namespace
}  // namespace jaxrec

XLA_FFI_DEFINE_HANDLER_SYMBOL(jaxrec_plan, jaxrec::plan_impl,
                              xla::ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs());
