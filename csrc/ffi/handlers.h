// The XLA FFI handlers of the extension.
#pragma once

#include "xla/ffi/api/c_api.h"

/// Plans a program and writes the schedule: `jaxrec_plan`.
///
/// Arguments: the program (int64 [n], or int32/uint32 [2 n] where 64-bit arrays are switched off:
/// the same memory), the entry function's control arguments ([lanes] each), the outer arrays.
/// Results: the buffers of `jaxrec::fill`. Attributes: lanes, widths, costs, names, outer_lanes,
/// max_calls, call_limit, depth_limit, collect, readers, workers, capacity; those that are
/// absent have the defaults of `jaxrec::Request`. The handler has no state.
extern "C" XLA_FFI_Error* jaxrec_plan(XLA_FFI_CallFrame* call_frame);

/// Leaves its results as XLA allocated them: `jaxrec_allocate`. A tape needs no initial value,
/// since every row that is read was written, and XLA has no operation that makes an array without
/// one.
extern "C" XLA_FFI_Error* jaxrec_allocate(XLA_FFI_CallFrame* call_frame);

/// Rows of a tape: `jaxrec_gather_rows`. Arguments: the tape [n, ...], row numbers (int32 [m]).
/// Result: [m, ...].
extern "C" XLA_FFI_Error* jaxrec_gather_rows(XLA_FFI_CallFrame* call_frame);

/// Sums of rows of a tape: `jaxrec_sum_rows`. Arguments: the tape [n, ...] (float32 or float64),
/// row numbers (int32), pointers into them (int32 [m + 1]). Result: [m, ...].
extern "C" XLA_FFI_Error* jaxrec_sum_rows(XLA_FFI_CallFrame* call_frame);
