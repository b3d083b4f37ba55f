// The parts of the extension module.
#pragma once

#include <nanobind/nanobind.h>

namespace jaxrec {

/// `run_tasks` and its report: the runtime of executor "host".
void bind_runtime(nanobind::module_& m);

/// `divide`: schedules over several domains.
void bind_division(nanobind::module_& m);

}  // namespace jaxrec
