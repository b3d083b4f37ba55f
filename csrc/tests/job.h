// Calling the scheduler on programs that are written by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/plan.h"
#include "tests/assembler.h"

namespace jaxrec {

class Stepper;
struct Room;

/// One call of `plan`, with the memory it reads: int32 roots and int32 vectors as outer arrays.
struct Job {
  Words words;
  std::vector<int32_t> roots;       // the entry function's first control argument, by lane
  std::vector<int32_t> more_roots;  // and its second, if it has one
  std::vector<std::vector<int32_t>> outers;
  Words widths = {4, 16};
  std::vector<double> costs = {1.0, 2.0};
  std::string names;
  int64_t max_calls = -1;
  int64_t call_limit = -1;
  int64_t depth_limit = -1;
  bool sweeps = false;
  bool collect = false;

  /// Lets waves come in sweeps.
  void sweep();

  Status run(int64_t workers, Schedule& out);
  Status start(std::unique_ptr<Stepper>& out, const Room& room);

  /// A view of this job.
  Request request(int64_t workers);

 private:
  Array view(std::vector<int32_t>& data, size_t at);

  std::vector<int64_t> dims_;
  Words lanes_;
};

}  // namespace jaxrec
