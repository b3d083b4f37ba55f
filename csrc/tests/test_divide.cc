// A divided schedule computes what the whole one does, every domain from its own tapes.
#include <limits>
#include <map>
#include <vector>

#include "core/divide.h"
#include "core/slots.h"
#include "tests/assembler.h"
#include "tests/check.h"
#include "tests/job.h"
#include "tests/random_program.h"

namespace jaxrec {
namespace {

constexpr int64_t kUnmade = std::numeric_limits<int64_t>::min();

// What a value is, as a number: the same in the whole schedule and in the divided one.
class Meaning {
 public:
  // `cells` of a domain; firings from `copies` on are copies.
  std::vector<int64_t> of_values(const Program& program, const Values& values, int32_t cells,
                                 size_t copies) {
    std::vector<int64_t> out(values.producers.size(), kUnmade);
    for (int32_t i : values.executed) {
      const Firing& firing = values.firings[i];
      const Cell& cell = program.cells[firing.cell];
      std::vector<int64_t> key = {firing.cell % cells, firing.frame};
      for (size_t k = 0; k < cell.inputs.size(); ++k) {
        const ValueId value = values.inputs[firing.input + k];
        CHECK(value < 0 || out[value] != kUnmade);
        key.push_back(value < 0 ? value : out[value]);
      }
      if (static_cast<size_t>(i) >= copies) {
        out[firing.output] = key.back();
        continue;
      }
      for (size_t k = 0; k < cell.outputs.size(); ++k) {
        key.push_back(static_cast<int64_t>(k));
        out[firing.output + k] = number(key);
        key.pop_back();
      }
    }
    return out;
  }

 private:
  int64_t number(const std::vector<int64_t>& key) {
    return numbers_.try_emplace(key, static_cast<int64_t>(numbers_.size())).first->second;
  }

  std::map<std::vector<int64_t>, int64_t> numbers_;
};

void check_division(const Schedule& whole, int32_t shards, const std::vector<int32_t>& devices,
                    const Job& job) {
  std::vector<double> costs(whole.program.cells.size() * job.widths.size(), 1.0);
  DivideOptions options;
  options.shards = shards;
  options.cell_device = devices;
  options.widths = job.widths;
  options.costs = costs;
  Division divided;
  CHECK(divide(whole, options, divided).ok());
  const int32_t cells = static_cast<int32_t>(whole.program.cells.size());
  const size_t firings = whole.values.firings.size();
  Meaning meaning;
  const auto before = meaning.of_values(whole.program, whole.values, cells, firings);
  const auto after = meaning.of_values(divided.program, divided.values, cells, firings);
  // Results are the same, and in domain 0.
  for (int32_t root : whole.frames->roots)
    for (size_t k = 0; k < whole.program.entry_function().results.size(); ++k) {
      const size_t at = whole.frames->starts[root].result + k;
      const ValueId x = whole.values.results[at], y = divided.values.results[at];
      CHECK(x < 0 ? x == y : before[x] == after[y]);
      if (y < 0) continue;
      const Firing& maker = divided.values.firings[divided.values.producers[y]];
      const Cell& cell = divided.program.cells[maker.cell];
      CHECK(cell.outputs[y - maker.output] < whole.program.num_classes);
    }
  // A wave reads what earlier waves made, from tapes of its own domain.
  std::vector<char> made(divided.values.producers.size(), 0);
  size_t placed = 0;
  for (const Wave& wave : divided.layout.waves) {
    const Cell& cell = divided.program.cells[wave.cell];
    for (int32_t i = 0; i < wave.count; ++i, ++placed) {
      const Firing& firing = divided.values.firings[divided.layout.order[wave.first + i]];
      for (size_t k = 0; k < cell.inputs.size(); ++k) {
        const ValueId value = divided.values.inputs[firing.input + k];
        CHECK(value < 0 || made[value]);
        if (value < 0) continue;
        const Firing& maker = divided.values.firings[divided.values.producers[value]];
        CHECK(divided.program.cells[maker.cell].outputs[value - maker.output] == cell.inputs[k]);
      }
    }
    for (int32_t i = 0; i < wave.count; ++i) {
      const Firing& firing = divided.values.firings[divided.layout.order[wave.first + i]];
      for (size_t k = 0; k < cell.outputs.size(); ++k) made[firing.output + k] = 1;
    }
  }
  CHECK(placed == divided.values.firings.size());
  const double time = estimate(divided.layout, divided.domains, divided.copies, job.widths.size(),
                               {cells, costs, 1.0, 2});
  CHECK(time <= static_cast<double>(divided.layout.waves.size()));
}

void random_programs() {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    Job job = RandomProgram(seed).job();
    Schedule schedule;
    if (!job.run(1, schedule).ok()) continue;
    std::vector<int32_t> one(schedule.program.cells.size(), 0), two = one;
    for (size_t i = 0; i < two.size(); ++i) two[i] = static_cast<int32_t>(i % 2);
    check_division(schedule, 1, two, job);
    check_division(schedule, 3, one, job);
    check_division(schedule, 2, two, job);
  }
}

// Of a balanced tree two shards get about half each, whatever its root does.
void shards_are_balanced() {
  Job job;
  job.words = tree_program().encode();
  constexpr int32_t kLeaves = 256;
  job.outers.resize(2);
  for (int32_t i = 0; i < 2 * kLeaves; ++i)
    for (int32_t side : {0, 1}) job.outers[side].push_back(i < kLeaves ? 2 * i + side : -1);
  job.roots = {1};
  Schedule schedule;
  CHECK(job.run(1, schedule).ok());
  const std::vector<int32_t> shard = find_shards(schedule, {1.0, 1.0}, 2);
  int32_t second = 0;
  for (int32_t s : shard) second += s;
  CHECK(second > 240 && second < 270);
  CHECK(find_shards(schedule, {1.0, 1.0}, 1) == std::vector<int32_t>(shard.size(), 0));
}

void edges_follow_slots() {
  TaskEdges edges;
  edges.cost = {1, 1, 1, 1};
  const std::vector<SlotUse> tasks = {{{}, {0}}, {{0}, {1}}, {{0}, {}}, {{0}, {0}}};
  CHECK(edges_of(tasks, 2, edges).ok());
  CHECK((edges.before == std::vector<int32_t>{0, 0, 0, 1, 2}));
  CHECK((edges.after == std::vector<int32_t>{1, 2, 3, 3, 3}));
  TaskEdges wrong;
  CHECK(!edges_of(tasks, 1, wrong).ok());
}

}  // namespace
}  // namespace jaxrec

int main() {
  jaxrec::random_programs();
  jaxrec::shards_are_balanced();
  jaxrec::edges_follow_slots();
  return jaxrec::report("divide");
}
