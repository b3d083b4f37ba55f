// Rows that are handed out again still hold what is read, when it is read.
#include <algorithm>
#include <vector>

#include "core/divide.h"
#include "core/reuse.h"
#include "tests/assembler.h"
#include "tests/check.h"
#include "tests/job.h"
#include "tests/random_program.h"

namespace jaxrec {
namespace {

// Runs the waves on tapes of value numbers; rows past the count of a wave get garbage.
class Replay {
 public:
  Replay(const Schedule& schedule, const std::vector<int64_t>& widths)
      : schedule_(schedule), layout_(schedule.layout), widths_(widths) {
    for (int32_t rows : layout_.value_rows) tapes_.emplace_back(rows + 2 * layout_.pad, kGarbage);
  }

  void check() {
    const Function& entry = schedule_.program.entry_function();
    for (size_t k = 0; k < entry.data.size(); ++k)
      for (int32_t lane = 0; lane < layout_.lanes; ++lane)
        tapes_[entry.data[k]][layout_.root_starts[k] + lane] =
            ~(static_cast<int32_t>(k) * layout_.lanes + lane);
    for (size_t w = 0; w < layout_.waves.size(); ++w) wave(w);
    results(schedule_.frames->roots);
    results(layout_.collected);
  }

 private:
  static constexpr int32_t kGarbage = 1 << 30;

  void wave(size_t w) {
    const Wave& wave = layout_.waves[w];
    const Cell& cell = schedule_.program.cells[wave.cell];
    for (int32_t i = 0; i < wave.count; ++i)
      for (size_t k = 0; k < cell.inputs.size(); ++k) {
        const ValueId value = schedule_.values.inputs[firing(wave, i).input + k];
        CHECK(tapes_[cell.inputs[k]][layout_.row(value)] == value);
      }
    for (size_t k = 0; k < cell.outputs.size(); ++k) {
      std::vector<int32_t>& tape = tapes_[cell.outputs[k]];
      const int32_t start = layout_.out_starts[w * layout_.max_out + k];
      CHECK(start + widths_[wave.width] <= static_cast<int64_t>(tape.size()));
      std::fill_n(tape.begin() + start, widths_[wave.width], kGarbage);
      for (int32_t i = 0; i < wave.count; ++i) {
        tape[start + i] = firing(wave, i).output + static_cast<int32_t>(k);
        CHECK(layout_.row(tape[start + i]) == start + i);
      }
    }
  }

  const Firing& firing(const Wave& wave, int32_t i) const {
    return schedule_.values.firings[layout_.order[wave.first + i]];
  }

  void results(const std::vector<int32_t>& frames) {
    const std::vector<int32_t>& classes = schedule_.program.entry_function().results;
    for (int32_t frame : frames)
      for (size_t k = 0; k < classes.size(); ++k) {
        const ValueId value = schedule_.values.results[schedule_.frames->starts[frame].result + k];
        CHECK(tapes_[classes[k]][layout_.row(value)] == value);
      }
  }

  const Schedule& schedule_;
  const Layout& layout_;
  const std::vector<int64_t>& widths_;
  std::vector<std::vector<int32_t>> tapes_;
};

void check_reuse(Schedule& schedule, const Job& job) {
  CHECK(reuse_rows(job.widths, schedule).ok());
  Replay(schedule, job.widths).check();
}

void random_programs() {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    Job job = RandomProgram(seed).job();
    job.collect = seed % 3 == 0;
    Schedule schedule;
    if (!job.run(1, schedule).ok()) continue;
    const std::vector<int32_t> devices(schedule.program.cells.size(), 0);
    const std::vector<double> costs(devices.size() * job.widths.size(), 1.0);
    DivideOptions options;
    options.shards = 3;
    options.cell_device = devices;
    options.widths = job.widths;
    options.costs = costs;
    Division divided;
    CHECK(divide(schedule, options, divided).ok());
    check_reuse(schedule, job);
    std::move(divided).replace(schedule);
    check_reuse(schedule, job);
  }
}

void random_forests() {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    Job job = random_forest(seed, 1 + seed % 7, 600);
    Schedule schedule;
    CHECK(job.run(1, schedule).ok());
    check_reuse(schedule, job);
  }
}

// However long a chain is, few of its values are alive.
void chains_need_few_rows() {
  for (bool fires : {false, true}) {
    Job job;
    job.words = chain_program(fires).encode();
    job.roots = {20'000};
    Schedule schedule;
    CHECK(job.run(1, schedule).ok());
    check_reuse(schedule, job);
    for (int32_t rows : schedule.layout.value_rows) CHECK(rows <= 3 * job.widths.front());
  }
}

void gaps_are_joined() {
  RowPool pool(10);
  CHECK(pool.take(4) == 10 && pool.take(4) == 14 && pool.take(8) == 18);
  pool.give_back(10, 4);
  pool.give_back(14, 4);
  CHECK(pool.take(8) == 10);
  pool.give_back(18, 8);
  CHECK(pool.take(4) == 18 && pool.take(16) == 22);
  CHECK(pool.end() == 38);
}

void widths_must_be_those_of_the_schedule() {
  Job job = random_forest(1, 2, 50);
  Schedule schedule;
  CHECK(job.run(1, schedule).ok());
  CHECK(!reuse_rows(std::vector<int64_t>{4}, schedule).ok());
}

}  // namespace
}  // namespace jaxrec

int main() {
  jaxrec::random_programs();
  jaxrec::random_forests();
  jaxrec::chains_need_few_rows();
  jaxrec::gaps_are_joined();
  jaxrec::widths_must_be_those_of_the_schedule();
  return jaxrec::report("reuse");
}
