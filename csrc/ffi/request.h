// A request for a schedule, from XLA's arguments and attributes.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/plan.h"
#include "ffi/decode.h"

namespace jaxrec {

/// Everything of one call that asks for a schedule, decoded.
struct PlanCall {
  Request request;
  std::vector<int64_t> words;  // of the program
  std::vector<Array> buffers;
  Span<const int64_t> capacity;
  Span<const int64_t> cell_capacity;
  bool readers = true, waves = true;
};

Status decode_attributes(const xla::ffi::Dictionary& dictionary, PlanCall& call);

/// The program, then arguments of the roots, then outer arrays, of which there are half as many as
/// there are numbers in `outer_lanes`.
Status decode_arguments(const std::vector<Array>& arrays, Span<const int64_t> outer_lanes,
                        std::vector<int64_t>& program, std::vector<Array>& roots,
                        std::vector<Array>& outers);

/// The same for a schedule, after `decode_attributes`.
Status decode_arguments(const std::vector<Array>& arrays, PlanCall& call);

/// Arguments from number `first`, where they are; what `out` held before is gone.
Status decode_arrays(const xla::ffi::RemainingArgs& args, size_t first, std::vector<Array>& out);

/// The results, where they are.
Status decode_results(const xla::ffi::RemainingRets& rets, std::vector<Array>& out);

xla::ffi::Error to_error(Status status);

/// Runs a handler; nothing may be thrown through XLA.
template <class Work>
xla::ffi::Error handle(Work&& work) {
  return to_error(guarded(std::forward<Work>(work)));
}

/// Makes the state of a handler.
template <class State>
xla::ffi::ErrorOr<std::unique_ptr<State>> make_state() {
  return std::make_unique<State>();
}

}  // namespace jaxrec
