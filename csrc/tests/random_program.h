// Random programs that end: every call passes a smaller number on. Stepped ones also choose by what
// cells made: by imported values, which they pass on to the calls that they make.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "tests/job.h"

namespace jaxrec {

class RandomProgram {
 public:
  explicit RandomProgram(uint32_t seed, bool stepped = false);

  Job job();

 private:
  void body(FunctionSpec& function);
  void step(Assembler& code, bool may_call, int64_t nesting = 0);
  void import(Assembler& code);
  void choose(Assembler& code, bool may_call, int64_t nesting);
  int64_t value(Assembler& code, int64_t c);
  Words values(Assembler& code, const Words& classes);
  int64_t slot(int64_t c);
  Words slots(const Words& classes);
  Words classes(int64_t least, int64_t most);
  Words exports() { return Words(pick(0, 2), kInt); }
  int64_t pick(int64_t low, int64_t high);

  static constexpr int64_t kNoClass = -1;  // of a slot that is not written yet

  std::mt19937 random_;
  bool stepped_;
  ProgramSpec spec_;
  std::vector<int64_t> slots_;  // class of each slot in use
  int64_t most_ = 0;
};

/// A tree for each root, by the children of its nodes.
Job random_forest(uint32_t seed, int num_roots, int num_nodes);

}  // namespace jaxrec
