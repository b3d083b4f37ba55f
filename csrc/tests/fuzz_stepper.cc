// The scheduler of stepped programs against plain recursion on random programs.
//
//   fuzz_stepper [random programs] [first seed]
#include <cstdio>
#include <cstdlib>

#include "tests/check.h"
#include "tests/job.h"
#include "tests/random_program.h"
#include "tests/step_check.h"

namespace jaxrec {
namespace {

Counts random_programs(uint32_t number, uint32_t first) {
  Counts counts;
  const int before = failures;
  for (uint32_t seed = first; seed < first + number; ++seed) {
    Job job = RandomProgram(seed, true).job();
    job.call_limit = 2000;
    if (seed % 3 == 0) job.sweep();
    check_job(job, counts);
    if (failures > before) {
      std::printf("seed %u\n", seed);
      break;
    }
  }
  CHECK(counts.ok > 0);
  return counts;
}

}  // namespace
}  // namespace jaxrec

int main(int argc, char** argv) {
  const jaxrec::Counts counts = jaxrec::random_programs(argc > 1 ? std::atoi(argv[1]) : 400,
                                                        argc > 2 ? std::atoi(argv[2]) : 0);
  std::printf("%ld random programs run (%ld calls, %ld waves), %ld refused\n",
              static_cast<long>(counts.ok), static_cast<long>(counts.calls),
              static_cast<long>(counts.waves), static_cast<long>(counts.refused));
  return jaxrec::report("fuzz_stepper");
}
