// Running stepped programs without XLA: cells are a function of what they read, on int32 tapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "core/stepper.h"
#include "tests/job.h"

namespace jaxrec {

using Values32 = std::vector<int32_t>;

/// Output `output` of a cell that reads `inputs` and `exports` in a lane.
int32_t cell_output(int32_t cell, size_t output, Values32 inputs, const Values32& exports,
                    int32_t lane);

/// Data argument `k` of the root of a lane.
int32_t root_value(size_t k, int32_t lane);

/// What a program means: plain recursion on its code.
class Evaluator {
 public:
  struct Made {  // a call of the entry function
    int32_t lane;
    std::vector<Word> control;
    Values32 results;
    bool operator<(const Made& b) const;
    bool operator==(const Made& b) const { return !(*this < b) && !(b < *this); }
  };

  Evaluator(const Program& program, const Job& job) : program_(program), job_(job) {}

  /// The results of the root of each lane. False: an index or the number of calls is out of range.
  bool run(std::vector<Values32>& out);

  int64_t calls = 0;
  std::vector<Made> made;

 private:
  using Key = std::tuple<int32_t, int32_t, std::vector<Word>>;

  Values32 call(int32_t number, const std::vector<Word>& control, const Values32& data,
                int32_t lane);
  Values32 run_body(const Function& function, const std::vector<Word>& control,
                    const Values32& data, int32_t lane);
  Word load(int32_t outer, Word index);
  void run_call(const Instr& in, const std::vector<Word>& reg, Values32& slot, int32_t lane);
  void fire(const Instr& in, const std::vector<Word>& reg, Values32& slot, int32_t lane);

  const Program& program_;
  const Job& job_;
  std::map<Key, Values32> shared_;
  bool ok_ = true;
};

/// A stepper run to its end.
class StepRun {
 public:
  struct Ran {  // a wave, as `step` and `write_operands` gave it
    Values32 row;
    std::vector<Values32> reads, exports;
    Values32 lanes;
  };

  explicit StepRun(Job& job) : job_(job) {}

  Status run(const Room& room = {});

  /// A tape for each class, with what the roots get.
  static std::vector<Values32> root_tapes(const Program& program, int64_t pad, int64_t lanes);

  std::unique_ptr<Stepper> stepper;
  std::vector<Values32> tapes;
  std::vector<Ran> waves;
  std::vector<Values32> result_rows;  // of each result, by lane
  Schedule schedule;
  int64_t calls = 0;

 private:
  void begin();
  std::vector<Array> imported();
  Status wave(size_t at);
  Status results();
  void compute(int32_t number, const Cell& cell, const Ran& ran, int64_t width);

  Job& job_;
  std::vector<int64_t> sizes_;
  std::vector<Values32> seen_;
};

}  // namespace jaxrec
