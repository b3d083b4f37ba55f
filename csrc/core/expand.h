// Expansion: from root calls to all frames, numbered depth first whatever the number of workers.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "core/worker.h"

namespace jaxrec {

struct ExpandOptions {
  int64_t lanes = 0;
  int64_t call_limit = -1;   // below 0: no bound
  int64_t depth_limit = -1;  // likewise
  int32_t workers = 0;       // 0: one, and more once the problem turns out to be large
  std::string_view names;
};

/// All frames. Concatenating the segments gives them in preorder: depth first, calls in program
/// order, roots in lane order.
struct Expansion {
  Shared shared;
  std::vector<std::unique_ptr<Worker>> workers;  // own the calls and segments
  Arena arena;                                   // owns the calls of a stepped program
  std::vector<Segment*> segments;
  std::vector<int32_t> bases;  // by a segment's number: the number of its first frame
  int64_t num_calls = 0;
  int32_t depth = 0;
};

/// `roots` are the entry function's control arguments, each of shape [lanes].
Status expand(const Program& program, const std::vector<Outer>& outers,
              const std::vector<Array>& roots, const ExpandOptions& options, Expansion& out);

}  // namespace jaxrec
