// No value has more readers than the program is found to allow.
#include <algorithm>
#include <vector>

#include "core/fill.h"
#include "core/most_readers.h"
#include "tests/check.h"
#include "tests/job.h"
#include "tests/random_program.h"
#include "tests/tables.h"

namespace jaxrec {
namespace {

using Values32 = std::vector<int32_t>;

// The readers that the tables of a schedule have, at most, of each output and argument.
class Counted {
 public:
  explicit Counted(const Schedule& schedule) : schedule_(schedule), tables_(schedule) {
    CHECK(fill(schedule, tables_.arrays()).ok());
  }

  int32_t most(size_t table, int64_t rows) {
    const int32_t* starts = tables_.ints(table);
    int32_t found = 0;
    for (int64_t i = 0; i < rows; ++i) found = std::max(found, starts[i + 1] - starts[i]);
    return found;
  }

  void check(const MostReaders& bound) {
    const Program& program = schedule_.program;
    for (size_t i = 0; i < program.cells.size(); ++i)
      for (size_t k = 0; k < program.cells[i].outputs.size(); ++k) {
        const int64_t rows = schedule_.layout.cell_rows[i] + 2 * schedule_.layout.pad;
        compare(most(tables_.cells[i].readers + k, rows), bound.outputs[i][k]);
      }
    for (size_t k = 0; k < bound.roots.size(); ++k)
      compare(most(tables_.root_readers + k, schedule_.layout.lanes), bound.roots[k]);
  }

  int exact = 0;

 private:
  void compare(int32_t found, int32_t bound) {
    CHECK(found <= bound || bound == MostReaders::kMany);
    if (found == bound && found > 0) ++exact;
  }

  const Schedule& schedule_;
  TableBuffers tables_;
};

int check_job(Job& job) {
  Schedule schedule;
  if (!job.run(1, schedule).ok()) return 0;
  Counted counted(schedule);
  counted.check(most_readers(schedule.program, job.collect));
  return counted.exact;
}

void random_programs() {
  int exact = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    Job job = RandomProgram(seed).job();
    job.call_limit = 2000;
    exact += check_job(job);
  }
  CHECK(exact > 50);
}

MostReaders bound_of(const ProgramSpec& spec, bool collect) {
  Program program;
  CHECK(decode(spec.encode(), program).ok());
  return most_readers(program, collect);
}

void a_tree_has_one_reader_a_node() {
  const Values32 one = {1}, two = {2};
  CHECK(bound_of(tree_program(), false).outputs == std::vector<Values32>({one, one}));
  CHECK(bound_of(tree_program(), true).outputs == std::vector<Values32>({two, two}));
}

// A value that comes back unchanged from every call of a chain is the result of each.
void a_chain_hands_its_argument_down() {
  CHECK(bound_of(chain_program(true), false).roots == Values32({1}));
  CHECK(bound_of(chain_program(false), false).roots == Values32({1}));
  CHECK(bound_of(chain_program(false), true).roots == Values32({MostReaders::kMany}));
}

}  // namespace
}  // namespace jaxrec

int main() {
  jaxrec::random_programs();
  jaxrec::a_tree_has_one_reader_a_node();
  jaxrec::a_chain_hands_its_argument_down();
  return jaxrec::report("most_readers");
}
