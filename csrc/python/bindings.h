// The parts of the extension module.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "core/status.h"

namespace jaxrec {

/// A failed status on its way to Python, where it becomes `PlanError(code, text, needed)`.
struct PlanError {
  Status status;
};

inline void raise_if_failed(Status status) {
  if (!status.ok()) throw PlanError{std::move(status)};
}

/// What a function gives that runs without the interpreter's lock, so that other threads go on.
template <class Function>
auto released(const Function& run) {
  const nanobind::gil_scoped_release release;
  return run();
}

/// `NativeFunction`: functions of scalars.
void bind_native(nanobind::module_& m);

/// `run_tasks` and its report: the runtime of executor "host".
void bind_runtime(nanobind::module_& m);

/// `divide`: schedules over several domains.
void bind_division(nanobind::module_& m);

}  // namespace jaxrec
