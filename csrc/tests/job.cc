// A job's memory as the arrays of a request.
#include "tests/job.h"

#include "core/stepper.h"

namespace jaxrec {

void Job::sweep() {
  sweeps = true;
  widths = {8};
  costs = {1.0};
}

Status Job::run(int64_t workers, Schedule& out) { return plan(request(workers), out); }

Status Job::start(std::unique_ptr<Stepper>& out, const Room& room) {
  return Stepper::start(request(1), room, out);
}

Request Job::request(int64_t workers) {
  dims_.assign(2 + outers.size(), 0);
  lanes_.clear();
  Request request;
  request.program = words;
  request.roots = {view(roots, 0)};
  if (!more_roots.empty()) request.roots.push_back(view(more_roots, 1));
  for (size_t i = 0; i < outers.size(); ++i) {
    request.outers.push_back(view(outers[i], 2 + i));
    lanes_.insert(lanes_.end(), {0, -1});
  }
  request.outer_lanes = lanes_;
  request.lanes = static_cast<int64_t>(roots.size());
  request.widths = widths;
  request.costs = costs;
  request.sweeps = sweeps;
  request.names = names;
  request.max_calls = max_calls;
  request.call_limit = call_limit;
  request.depth_limit = depth_limit;
  request.collect = collect;
  request.workers = workers;
  return request;
}

Array Job::view(std::vector<int32_t>& data, size_t at) {
  dims_[at] = static_cast<int64_t>(data.size());
  return {data.data(), DType::kI32, {&dims_[at], 1}};
}

}  // namespace jaxrec
