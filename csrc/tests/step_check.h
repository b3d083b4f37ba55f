// Checks of a stepped run: against plain recursion, and of its schedule against its tapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/job.h"
#include "tests/step_run.h"
#include "tests/tables.h"

namespace jaxrec {

/// What a finished schedule says of the tapes, compared with the tapes as they were run.
class Replay {
 public:
  explicit Replay(const StepRun& run);

  void check();

  int32_t value(int32_t c, int32_t row) const { return tapes_[c][row]; }

  int32_t result(size_t k, int64_t lane);

  std::vector<Evaluator::Made> collected();

 private:
  const int32_t* row(size_t wave);
  void wave(size_t w);
  void firing(int32_t number, const Cell& cell, const int32_t* at, const StepRun::Ran& ran,
              int32_t i);
  void note(int32_t c, int32_t value_row, size_t table, int32_t place);
  void results();
  void readers();

  using Pairs = std::vector<std::pair<int32_t, int32_t>>;  // value row, read row

  const StepRun& run_;
  const Schedule& schedule_;
  const Program& program_;
  const Layout& layout_;
  TableBuffers tables_;
  std::vector<Values32> tapes_;
  std::vector<Pairs> rows_, wanted_;
};

/// What checked runs add up to.
struct Counts {
  int64_t ok = 0, refused = 0, calls = 0, waves = 0;
};

/// Checks everything about a job.
void check_job(Job& job, Counts& counts);

}  // namespace jaxrec
