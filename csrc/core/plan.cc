#include "core/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/bind.h"
#include "core/processors.h"

namespace jaxrec {
namespace {

constexpr int64_t kMostLanes = std::numeric_limits<int32_t>::max();
constexpr int64_t kMostWidth = 1 << 24;
constexpr size_t kWholePath = 64;  // a path that is asked for is shown whole up to so many calls

Status check_waves(const WaveOptions& options, size_t cells) {
  const auto& [widths, costs, sweeps] = options;
  const size_t n = widths.size();
  if (sweeps && n != 1) return program_error("waves of sweeps are of one width");
  if (n == 0 || (costs.size() != n && costs.size() != n * cells))
    return program_error("expected a width, and a cost for each width, or for each of each cell");
  int64_t last = 0;
  for (int64_t width : widths) {
    if (width <= last || width > kMostWidth) return program_error("widths must ascend from 1");
    last = width;
  }
  for (size_t i = 0; i < costs.size(); ++i)
    if (!(costs[i] > 0) || (i % n == 0 && !std::isfinite(costs[i])))
      return program_error("costs must be positive, and of the least width finite");
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

Status check_calls(const Request& request, const Schedule& schedule) {
  const int64_t made = schedule.expansion.num_calls;
  if (request.max_calls < 0 || made <= request.max_calls) return {};
  const Names names(schedule.program, request.names);
  const std::string n = std::to_string(made);
  return capacity_error(
      names.function(schedule.program.entry) + " made " + n +
          " calls in one invocation, but max_calls is " + std::to_string(request.max_calls) +
          " (declared, or as many as the nodes that index its calls, each "
          "counted once). Pass rec_fn(max_calls=" +
          n + ") or more (or none, and call eagerly: capacity then grows by itself).",
      made);
}

Status plan_unguarded(const Request& request, Schedule& out) {
  std::vector<Outer> outers;
  if (Status status = bind_request(request, out.program, outers); !status.ok()) return status;
  if (!out.program.imports.empty())
    return program_error("it imports computed values, so it cannot be planned");
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
                 {request.of_waves(), request.collect, request.waves}, out.layout);
}

}  // namespace

Status bind_request(const Request& request, Program& program, std::vector<Outer>& outers) {
  if (Status status = decode(request.program, program); !status.ok()) return status;
  if (Status status = check_waves(request.of_waves(), program.cells.size()); !status.ok())
    return status;
  if (Status status = check_roots(request, program); !status.ok()) return status;
  return bind_outers(program.outers, request.outers, request.outer_lanes, request.lanes, outers);
}

std::string Schedule::call_path(int64_t frame) const {
  std::vector<PathStep> path;
  if (frame < 0 || frame >= frames->size()) return "";
  for (int32_t at = static_cast<int32_t>(frame); at >= 0; at = frames->parents[at])
    path.push_back({frames->outline(at).function, frames->site(at)});
  std::reverse(path.begin(), path.end());
  return format_path(Names(program, names), path, kWholePath);
}

Status plan(const Request& request, Schedule& out) {
  return guarded([&] { return plan_unguarded(request, out); });
}

Status lay_out(const WaveOptions& options, Schedule& schedule) {
  return guarded([&] {
    if (Status status = check_waves(options, schedule.program.cells.size()); !status.ok())
      return status;
    schedule.layout = {};
    schedule.num_widths = static_cast<int64_t>(options.widths.size());
    return lay_out(schedule.program, *schedule.frames, schedule.values, {options, schedule.collect},
                   schedule.layout);
  });
}

}  // namespace jaxrec
