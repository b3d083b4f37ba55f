// Running a native program: from arrays of arguments to arrays of results.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "core/array.h"
#include "core/native_program.h"
#include "core/status.h"

namespace jaxrec::native {

/// The arrays that a program reads and writes, and what bounds a run of it.
struct Request {
  std::vector<Array> roots;         // arguments of the entry function: [lanes, elements of one]
  std::vector<Array> outers;        // arrays that all calls read; some with a leading axis
  std::vector<Array> results;       // of the entry function: [lanes, elements of one]
  Span<const int64_t> outer_lanes;  // stride and size by outer array: see Outer; size -1: no axis
  std::string_view names;           // see Names
  int64_t lanes = 0;
  int64_t max_calls = -1;         // of all lanes together; negative: any number
  int64_t rows = 1;               // runs with the same calls, of which texts speak as of one
  int64_t depth_limit = -1;       // nested calls; negative: as many as memory holds
  int64_t call_limit = -1;        // after so many a run is taken to be without end; negative: never
  int64_t serial_calls = 20'000;  // below so many a thread costs more than it gives
  int64_t workers = 0;            // 0: as many as the machine has cores, but at most 8
  std::function<bool()> give_up;  // asked now and then by the calling thread; may be empty
};

/// Runs a program. Results and errors do not depend on the number of workers.
Status run(const Program& program, const Request& request);

/// Decodes a program and runs it.
Status run(Span<const int64_t> words, const Request& request);

}  // namespace jaxrec::native
