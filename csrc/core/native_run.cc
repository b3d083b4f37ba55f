#include "core/native_run.h"

#include <algorithm>
#include <limits>
#include <string>

#include "core/bind.h"
#include "core/names.h"
#include "core/native_pool.h"
#include "core/processors.h"

namespace jaxrec::native {
namespace {

constexpr int64_t kMostLanes = std::numeric_limits<int32_t>::max();
// If nobody allows more: of the calls that are nested in one another, and of all stacks.
constexpr int64_t kMostNestedBytes = int64_t{1} << 30;
constexpr int64_t kMostStackBytes = kMostNestedBytes / 8 * 9;

Status check_ports(const std::vector<Port>& ports, const std::vector<Array>& arrays, int64_t lanes,
                   const char* what) {
  if (arrays.size() != ports.size())
    return program_error("got " + std::to_string(arrays.size()) + " " + what + "s, expected " +
                         std::to_string(ports.size()));
  for (size_t i = 0; i < ports.size(); ++i)
    if (arrays[i].dtype != ports[i].dtype || arrays[i].size() != lanes * ports[i].count)
      return program_error(std::string(what) + " " + std::to_string(i) + " is " +
                           describe(arrays[i]) + ", expected " + dtype_name(ports[i].dtype) +
                           " of " + std::to_string(lanes * ports[i].count) + " elements");
  return {};
}

int32_t choose_workers(const Request& request, const Program& program) {
  if (program.memo) return 1;  // one table of the calls made
  if (request.workers > 0) return static_cast<int32_t>(std::min(request.workers, kMostWorkers));
  return automatic_workers();
}

int64_t frame_bytes_of(const Program& program) {
  return program.frame_words * static_cast<int64_t>(sizeof(Word));
}

int64_t choose_depth(const Request& request, const Program& program) {
  const int64_t most = std::max(kMostNestedBytes / frame_bytes_of(program), request.max_calls);
  return request.depth_limit < 0 ? most : std::min(request.depth_limit, most);
}

// A stack that grows takes up to twice what it holds.
int64_t choose_stack_bytes(int64_t depth_limit, const Program& program) {
  const int64_t deepest = depth_limit * frame_bytes_of(program);
  return deepest > kMostNestedBytes ? 2 * deepest : kMostStackBytes;
}

/// The program as messages see it.
jaxrec::Program outline_of(const Program& program) {
  jaxrec::Program outline;
  outline.outers = program.outers;
  for (const Function& function : program.functions)
    outline.functions.emplace_back().control = function.args;
  return outline;
}

std::vector<PathStep> path_of(const Stack& stack) {
  std::vector<PathStep> path = {{0, -1}};
  for (int64_t n = 2; n <= stack.top(); ++n) {
    const CallSite& call = stack.program.site_before(stack.return_address(n));
    path.push_back({call.callee, call.site});
  }
  return path;
}

/// The call that the stack's newest frame was about to make.
Call* pending_call(const Stack& stack, Arena& arena, std::vector<PathStep>& path) {
  const CallSite& site =
      stack.program.calls[stack.program.call_of[stack.pc - stack.program.code.data()]];
  const size_t num_args = stack.program.functions[site.callee].args.size();
  Call* call = new_call(arena, {0, 0, 0, site.callee, stack.lane, 0}, num_args);
  for (size_t i = 0; i < num_args; ++i)
    call->control()[i] = stack.fp[stack.program.pool[site.args + i]];
  path.push_back({site.callee, site.site});
  return call;
}

Status describe_fault(const Request& request, const std::vector<Outer>& outers, const Stack& stack,
                      const Machine& machine) {
  const jaxrec::Program outline = outline_of(stack.program);
  const Names names(outline, request.names);
  std::vector<PathStep> path = path_of(stack);
  Arena arena;
  if (stack.fault == Fault::kIndex) {
    IndexFault fault = machine.fault();
    fault.call = new_call(arena, {0, 0, 0, path.back().function, stack.lane, 0}, 0);
    return index_error(names, path, fault, outers[fault.outer]);
  }
  const Call* call = pending_call(stack, arena, path);
  if (stack.fault == Fault::kCycle) return itself_error(outline, names, path, *call);
  if (stack.fault == Fault::kCalls)
    return call_limit_error(outline, names, path, *call, request.call_limit);
  return depth_limit_error(outline, names, path, *call, stack.depth_limit);
}

Status check_calls(const Request& request, const Program& program, int64_t made) {
  if (request.max_calls < 0 || made <= request.max_calls) return {};
  const Names names(outline_of(program), request.names);
  const int64_t rows = std::max<int64_t>(request.rows, 1);
  const int64_t needed = (made + rows - 1) / rows;
  const std::string n = std::to_string(needed);
  return capacity_error(
      names.function(0) + " made " + n + " calls in one invocation, but max_calls is " +
          std::to_string(request.max_calls / rows) + ". Pass rec_fn(max_calls=" + n +
          ") or more, or leave max_calls out: this function needs no bound.",
      needed);
}

Status run_unguarded(const Program& program, const Request& request) {
  if (request.lanes < 0 || request.lanes > kMostLanes)
    return program_error("the number of lanes is out of range");
  Status status = check_ports(program.roots, request.roots, request.lanes, "root argument");
  if (!status.ok()) return status;
  status = check_ports(program.results, request.results, request.lanes, "result");
  if (!status.ok()) return status;
  std::vector<Outer> outers;
  status = bind_outers(program.outers, request.outers, request.outer_lanes, request.lanes, outers);
  if (!status.ok()) return status;
  const int64_t depth_limit = choose_depth(request, program);
  Invocation at{program,
                outers,
                request.roots,
                request.results,
                request.lanes,
                depth_limit,
                choose_stack_bytes(depth_limit, program),
                request.call_limit,
                request.serial_calls,
                choose_workers(request, program),
                true,
                request.give_up};
  // Several workers, and lanes in lockstep, find faults in any order. One worker finds the first in
  // program order, so the message is always the same.
  if (at.workers > 1 || Gang::runs(at)) {
    Pool pool(at);
    const Fault fault = pool.run();
    if (fault == Fault::kNone) return check_calls(request, program, pool.calls());
    if (fault == Fault::kGivenUp) return internal_error("interrupted");
    at.workers = 1;
    at.lockstep = false;
  }
  Pool alone(at);
  const Fault fault = alone.run();
  if (fault == Fault::kNone) return check_calls(request, program, alone.calls());
  if (fault == Fault::kGivenUp) return internal_error("interrupted");
  if (alone.faulty() == nullptr || fault == Fault::kMemory)
    return memory_error(Names(outline_of(program), request.names).function(0));
  return describe_fault(request, outers, *alone.faulty(), alone.first_machine());
}

}  // namespace

Status run(const Program& program, const Request& request) {
  return guarded([&] { return run_unguarded(program, request); });
}

Status run(Span<const int64_t> words, const Request& request) {
  Program program;
  if (Status status = decode(words, program); !status.ok()) return status;
  return run(program, request);
}

}  // namespace jaxrec::native
