// The XLA FFI handlers of the extension. Those that run the scheduler are there twice: for CPU, and
// as `..._cuda` for NVIDIA's GPUs, where they copy control values to the host and tables back.
#pragma once

#include "xla/ffi/api/c_api.h"

/// Plans a program and writes the schedule: `jaxrec_plan`.
///
/// Arguments: the program (int32 [2 n], the halves of its words: JAX may have no int64), the entry
/// function's control arguments ([lanes] each), the outer arrays.
/// Results: the buffers of `jaxrec::fill`. Attributes: lanes, widths, costs, names, outer_lanes,
/// max_calls, call_limit, depth_limit, collect, readers, workers, capacity; those that are
/// absent have the defaults of `jaxrec::Request`. Each place of a compiled program that plans has
/// the state that `jaxrec_plan_instantiate` makes: what it has planned last.
extern "C" XLA_FFI_Error* jaxrec_plan_instantiate(XLA_FFI_CallFrame* call_frame);
extern "C" XLA_FFI_Error* jaxrec_plan(XLA_FFI_CallFrame* call_frame);

/// Leaves its results as XLA allocated them: `jaxrec_allocate`. A tape needs no initial value,
/// since nothing depends on what a row holds before it is written, and XLA has no operation that
/// makes an array without one. Large ones ask for large pages: see core/pages.h.
extern "C" XLA_FFI_Error* jaxrec_allocate(XLA_FFI_CallFrame* call_frame);

/// Rows of a tape: `jaxrec_gather_rows`. Arguments: the tape [n, ...], row numbers (int32 [m]).
/// Result: [m, ...].
extern "C" XLA_FFI_Error* jaxrec_gather_rows(XLA_FFI_CallFrame* call_frame);

/// Sums of rows of a tape: `jaxrec_sum_rows`. Arguments: the tape [n, ...] (float32 or float64),
/// row numbers (int32), pointers into them (int32 [m + 1]). Result: [m, ...].
extern "C" XLA_FFI_Error* jaxrec_sum_rows(XLA_FFI_CallFrame* call_frame);

/// Random words: `jaxrec_random`. Arguments: keys (uint32 [n, 2]), the first counter of each
/// (uint32 [n]). Results: the two words of each block, uint32 [n, counters] each. See
/// core/threefry.h.
extern "C" XLA_FFI_Error* jaxrec_random(XLA_FFI_CallFrame* call_frame);

/// What a wave reads, in one call: `jaxrec_read`. Arguments: numbers of waves (int32 [n, columns]),
/// which wave; a tape and a table of its row numbers for each of `gathers`; a tape, row numbers and
/// a table of pointers into them for each of `sums`; arrays that have to be there before. Results:
/// the numbers of the wave, then [width, ...] for each. Of tables the rows from the one in column
/// `first` on are read (from row 0 if that is -1); or, unless `calls` is -1, the rows that end with
/// the last of as many from there as column `calls` tells. Each tape is several, on as many `axes`
/// in front, and so is what is read of it.
extern "C" XLA_FFI_Error* jaxrec_read(XLA_FFI_CallFrame* call_frame);

/// A stepped invocation: `jaxrec_step_begin` makes a stepper (arguments and attributes as
/// `jaxrec_plan`, and cell_capacity; result: its handle, int32 [2]); `jaxrec_step` (handle,
/// anything, a tape an import) gives the next wave as a row of the wave table, of kind -1 when
/// there is none; `jaxrec_step_operands` (handle, wave) gives its read rows, exports and lanes.
/// Where waves come in sweeps `jaxrec_step` gives all of a sweep: see `Stepper::write_sweep`. The
/// invocation ends with `jaxrec_step_results` (handle, last wave), which gives the row of each
/// result, or with `jaxrec_step_end`, which writes the schedule as `jaxrec_plan` does, or what
/// tells the results alone if its attribute `waves` is 0. Each place of a compiled program that
/// begins steppers has the state that `jaxrec_step_instantiate` makes.
extern "C" XLA_FFI_Error* jaxrec_step_instantiate(XLA_FFI_CallFrame* call_frame);
extern "C" XLA_FFI_Error* jaxrec_step_begin(XLA_FFI_CallFrame* call_frame);
extern "C" XLA_FFI_Error* jaxrec_step(XLA_FFI_CallFrame* call_frame);
extern "C" XLA_FFI_Error* jaxrec_step_operands(XLA_FFI_CallFrame* call_frame);
extern "C" XLA_FFI_Error* jaxrec_step_results(XLA_FFI_CallFrame* call_frame);
extern "C" XLA_FFI_Error* jaxrec_step_end(XLA_FFI_CallFrame* call_frame);

/// Runs a native program: `jaxrec_native`. Arguments: the program as for `jaxrec_plan`, arguments
/// of the roots, outer arrays. Results: those of the entry function, by lane. Attributes: lanes,
/// names, outer_lanes, max_calls, rows, depth_limit, call_limit, workers; those that are absent
/// have the defaults of `jaxrec::native::Request`.
extern "C" XLA_FFI_Error* jaxrec_native(XLA_FFI_CallFrame* call_frame);

extern "C" XLA_FFI_Error* jaxrec_plan_instantiate_cuda(XLA_FFI_CallFrame* call_frame);
extern "C" XLA_FFI_Error* jaxrec_plan_cuda(XLA_FFI_CallFrame* call_frame);
extern "C" XLA_FFI_Error* jaxrec_step_instantiate_cuda(XLA_FFI_CallFrame* call_frame);
extern "C" XLA_FFI_Error* jaxrec_step_begin_cuda(XLA_FFI_CallFrame* call_frame);
extern "C" XLA_FFI_Error* jaxrec_step_cuda(XLA_FFI_CallFrame* call_frame);
extern "C" XLA_FFI_Error* jaxrec_step_operands_cuda(XLA_FFI_CallFrame* call_frame);
extern "C" XLA_FFI_Error* jaxrec_step_results_cuda(XLA_FFI_CallFrame* call_frame);
extern "C" XLA_FFI_Error* jaxrec_step_end_cuda(XLA_FFI_CallFrame* call_frame);
extern "C" XLA_FFI_Error* jaxrec_native_cuda(XLA_FFI_CallFrame* call_frame);
