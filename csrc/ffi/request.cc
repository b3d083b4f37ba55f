#include "ffi/request.h"

namespace jaxrec {
namespace {

namespace ffi = xla::ffi;

ffi::ErrorCode error_code(Code code) {
  switch (code) {
    case Code::kCapacity:
    case Code::kRecursionLimit: return ffi::ErrorCode::kResourceExhausted;
    case Code::kIndex: return ffi::ErrorCode::kOutOfRange;
    case Code::kProgram: return ffi::ErrorCode::kInvalidArgument;
    default: return ffi::ErrorCode::kInternal;
  }
}

}  // namespace

Status decode_attributes(const ffi::Dictionary& dictionary, PlanCall& call) {
  Attributes attrs(dictionary);
  Request& request = call.request;
  attrs.number("lanes", request.lanes);
  attrs.span("widths", request.widths);
  attrs.span("costs", request.costs);
  attrs.flag("sweeps", request.sweeps);
  attrs.text("names", request.names);
  attrs.span("outer_lanes", request.outer_lanes);
  attrs.number("max_calls", request.max_calls);
  attrs.number("call_limit", request.call_limit);
  attrs.number("depth_limit", request.depth_limit);
  attrs.flag("collect", request.collect);
  attrs.flag("readers", call.readers);
  attrs.flag("waves", call.waves);
  attrs.number("workers", request.workers);
  attrs.span("capacity", call.capacity);
  attrs.span("cell_capacity", call.cell_capacity);
  return attrs.status();
}

Status decode_arrays(const ffi::RemainingArgs& args, size_t first, std::vector<Array>& out) {
  out.clear();
  out.reserve(args.size());
  for (size_t i = first; i < args.size(); ++i) {
    const auto buffer = args.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return program_error(buffer.error().message());
    if (Status status = decode_buffer(*buffer, out.emplace_back()); !status.ok()) return status;
  }
  return {};
}

Status decode_arguments(const std::vector<Array>& arrays, Span<const int64_t> outer_lanes,
                        std::vector<int64_t>& program, std::vector<Array>& roots,
                        std::vector<Array>& outers) {
  const size_t num_outers = outer_lanes.size() / 2;
  if (arrays.size() < 1 + num_outers) return program_error("too few arguments");
  const auto first = arrays.end() - static_cast<std::ptrdiff_t>(num_outers);
  roots.assign(arrays.begin() + 1, first);
  outers.assign(first, arrays.end());
  return decode_words(arrays[0], program);
}

Status decode_arguments(const std::vector<Array>& arrays, PlanCall& call) {
  Request& request = call.request;
  Status status =
      decode_arguments(arrays, request.outer_lanes, call.words, request.roots, request.outers);
  request.program = call.words;
  return status;
}

Status decode_results(const ffi::RemainingRets& rets, std::vector<Array>& out) {
  out.clear();
  out.reserve(rets.size());
  for (size_t i = 0; i < rets.size(); ++i) {
    auto buffer = rets.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) return program_error(buffer.error().message());
    if (Status status = decode_buffer(**buffer, out.emplace_back()); !status.ok()) return status;
  }
  return {};
}

ffi::Error to_error(Status status) {
  if (status.ok()) return ffi::Error::Success();
  return ffi::Error(error_code(status.code), std::move(status.text));
}

}  // namespace jaxrec
