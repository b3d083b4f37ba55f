#include "core/plan.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <new>

namespace jaxrec {
namespace {

constexpr int64_t kMostLanes = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostWidth = 1 << 24;
constexpr int64_t kMostWorkers = 256;

std::string describe(const Array& array) {
  std::string out = std::string(dtype_name(array.dtype)) + "[";
  for (size_t i = 0; i < array.dims.size(); ++i)
    out += (i ? "," : "") + std::to_string(array.dims[i]);
  return out + "]";
}

Status check_widths(const Request& request) {
  if (request.widths.size() == 0 || request.widths.size() != request.costs.size())
    return program_error("expected as many widths as costs, and at least one");
  int64_t last = 0;
  for (int64_t width : request.widths) {
    if (width <= last || width > kMostWidth) return program_error("widths must ascend from 1");
    last = width;
  }
  for (double cost : request.costs)
    if (!(cost > 0) || !std::isfinite(cost))
      return program_error("costs must be positive and finite");
  return {};
}

Status check_roots(const Request& request, const Program& program) {
  const std::vector<DType>& types = program.entry_function().control;
  if (request.lanes < 0 || request.lanes > kMostLanes)
    return program_error("the number of lanes is out of range");
  if (request.roots.size() != types.size())
    return program_error("got " + std::to_string(request.roots.size()) +
                         " root arguments, expected " + std::to_string(types.size()));
  for (size_t i = 0; i < types.size(); ++i) {
    const Array& root = request.roots[i];
    if (root.dtype != types[i] || root.rank() != 1 || root.dims[0] != request.lanes)
      return program_error("root argument " + std::to_string(i) + " is " + describe(root) +
                           ", expected " + dtype_name(types[i]) + "[" +
                           std::to_string(request.lanes) + "]");
  }
  return {};
}

Status bind_outer(const OuterType& type, const Array& array, int64_t stride, int64_t size,
                  Outer& out) {
  const bool batched = size != 0;
  if (array.dtype != type.dtype || array.rank() != type.rank + batched)
    return program_error("an outer array is " + describe(array) + ", expected " +
                         dtype_name(type.dtype) + " of rank " +
                         std::to_string(type.rank + batched));
  if (size < 0 || (batched && (stride < 1 || array.dims[0] != size)))
    return program_error("an outer array's lanes (stride " + std::to_string(stride) + ", size " +
                         std::to_string(size) + ") do not fit " + describe(array));
  out.array = array;
  out.load = load_fn(array.dtype);
  out.lane_stride = stride;
  out.lane_size = size;
  out.dims = Span<const int64_t>(array.dims.begin() + batched, array.dims.size() - batched);
  out.elements = 1;
  for (int64_t dim : out.dims) out.elements *= dim;
  return {};
}

Status bind_outers(const Request& request, const Program& program, std::vector<Outer>& out) {
  const size_t n = program.outers.size();
  if (request.outers.size() != n || request.outer_lanes.size() != 2 * n)
    return program_error("got " + std::to_string(request.outers.size()) + " outer arrays with " +
                         std::to_string(request.outer_lanes.size()) + " lane numbers, expected " +
                         std::to_string(n) + " with two each");
  out.resize(n);
  for (size_t i = 0; i < n; ++i) {
    const int64_t* lanes = request.outer_lanes.begin() + 2 * i;
    Status status = bind_outer(program.outers[i], request.outers[i], lanes[0], lanes[1], out[i]);
    if (!status.ok()) return status;
  }
  return {};
}

Status check_calls(const Request& request, const Schedule& schedule) {
  const int64_t made = schedule.expansion.num_calls;
  if (request.max_calls < 0 || made <= request.max_calls) return {};
  const Names names(schedule.program, request.names);
  const std::string n = std::to_string(made);
  return capacity_error(names.function(schedule.program.entry) + " made " + n +
                            " calls in one invocation, but max_calls is " +
                            std::to_string(request.max_calls) + ". Pass rec_fn(max_calls=" + n +
                            ") or more (or call eagerly, where capacity grows by itself).",
                        made);
}

Status plan_unguarded(const Request& request, Schedule& out) {
  if (Status status = decode(request.program, out.program); !status.ok()) return status;
  if (Status status = check_widths(request); !status.ok()) return status;
  if (Status status = check_roots(request, out.program); !status.ok()) return status;
  std::vector<Outer> outers;
  if (Status status = bind_outers(request, out.program, outers); !status.ok()) return status;
  ExpandOptions options;
  options.lanes = request.lanes;
  options.call_limit = request.call_limit;
  options.depth_limit = request.depth_limit;
  options.workers = static_cast<int32_t>(std::clamp<int64_t>(request.workers, 0, kMostWorkers));
  options.names = request.names;
  Status status = expand(out.program, outers, request.roots, options, out.expansion);
  if (!status.ok()) return status;
  if (status = check_calls(request, out); !status.ok()) return status;
  out.names = request.names;
  out.collect = request.collect;
  out.num_widths = static_cast<int64_t>(request.widths.size());
  out.frames = std::make_unique<FrameTable>(out.program);
  if (status = number_frames(out.program, out.expansion, *out.frames); !status.ok()) return status;
  out.values = walk(out.program, *out.frames, request.lanes);
  return lay_out(out.program, *out.frames, out.values,
                 {request.widths, request.costs, request.collect}, out.layout);
}

}  // namespace

std::string Schedule::call_path(int64_t frame) const {
  std::vector<PathStep> path;
  if (frame < 0 || frame >= frames->size()) return "";
  for (int32_t at = static_cast<int32_t>(frame); at >= 0; at = frames->parents[at])
    path.push_back({frames->outline(at).function, frames->site(at)});
  std::reverse(path.begin(), path.end());
  return format_path(Names(program, names), path);
}

Status plan(const Request& request, Schedule& out) {
  try {
    return plan_unguarded(request, out);
  } catch (const std::bad_alloc&) {
    return internal_error("out of memory");
  } catch (const std::exception& error) {
    return internal_error(error.what());
  }
}

}  // namespace jaxrec
