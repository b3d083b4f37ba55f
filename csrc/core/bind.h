// Binding the caller's arrays to the outer arrays of a program.
#pragma once

#include <string>
#include <vector>

#include "core/machine.h"
#include "core/program.h"
#include "core/status.h"

namespace jaxrec {

/// `int32[3,4]`
std::string describe(const Array& array);

/// Checks arrays against their types. `numbers` has two an array, stride and size; a size that is
/// not -1 says that the array has a leading axis which the `lanes` index: see Outer.
Status bind_outers(const std::vector<OuterType>& types, const std::vector<Array>& arrays,
                   Span<const int64_t> numbers, int64_t lanes, std::vector<Outer>& out);

}  // namespace jaxrec
