// Malformed programs must be refused and never crash: random words, and valid programs with words
// changed, cut or repeated. What is accepted must schedule and fill like any program. Stepped ones
// get tapes of anything, and at times tapes and buffers that do not fit.
//
//   fuzz_program [rounds] [seed]
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "core/fill.h"
#include "core/stepper.h"
#include "tests/assembler.h"
#include "tests/check.h"
#include "tests/job.h"
#include "tests/random_program.h"
#include "tests/tables.h"

namespace jaxrec {
namespace {

class Fuzzer {
 public:
  explicit Fuzzer(uint32_t seed) : random_(seed) {
    for (int64_t i = 0; i < 2 * kTapeRows; ++i) anything_.push_back(word());
  }

  void round(uint32_t number) {
    Job job = RandomProgram(number).job();
    job.call_limit = 500;
    if (number % 3 == 0) job.sweep();
    for (int64_t changes = below(4); changes > 0; --changes) change(job.words);
    if (below(20) == 0) noise(job.words);
    Schedule schedule;
    const Status status = job.run(1 + below(2), schedule);
    ++(status.ok() ? accepted : refused);
    if (status.ok()) fill_some(schedule);
    else CHECK(!status.text.empty());
  }

  // The tapes hold anything, since what cells compute is not the scheduler's to know.
  void stepped_round(uint32_t number) {
    Job job = RandomProgram(number, true).job();
    job.call_limit = 500;
    if (number % 3 == 0) job.sweep();
    for (int64_t changes = below(4); changes > 0; --changes) change(job.words);
    std::unique_ptr<Stepper> stepper;
    Status status = job.start(stepper, room());
    Schedule schedule;
    if (status.ok()) status = drive(*stepper);
    if (status.ok()) status = stepper->finish(schedule);
    ++(status.ok() ? accepted : refused);
    if (status.ok()) fill_some(schedule);
    else CHECK(!status.text.empty());
    if (stepper != nullptr) CHECK(!stepper->finish(schedule).ok() && !stepper->step({}).ok());
  }

  int64_t accepted = 0, refused = 0;

 private:
  static constexpr int64_t kTapeRows = 5000;

  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random_); }

  // Small numbers mostly: they are the ones that pass for operands.
  int64_t word() {
    switch (below(8)) {
      case 0: return static_cast<int64_t>(random_() * 0x9e3779b97f4a7c15ull);
      case 1: return -below(10);
      case 2: return int64_t{1} << below(63);
      default: return below(12);
    }
  }

  void change(Words& words) {
    if (words.empty()) return;
    const int64_t at = below(static_cast<int64_t>(words.size()));
    switch (below(5)) {
      case 0: words.erase(words.begin() + at); break;
      case 1: words.insert(words.begin() + at, word()); break;
      case 2: words.resize(at); break;
      case 3: words[at] += below(3) - 1; break;
      default: words[at] = word();
    }
  }

  // Mostly none; some of the wrong size, some too small.
  Room room() {
    room_ = Words(below(5), below(200));
    if (below(4) != 0) room_.clear();
    return {room_, room_, below(2) == 0};
  }

  Status drive(Stepper& stepper) {
    for (;;) {
      std::vector<std::vector<int64_t>> data;
      std::vector<int64_t> dims;
      if (Status status = stepper.step(tapes(stepper.program(), data, dims)); !status.ok())
        return status;
      if (stepper.waves().empty()) return {};
      for (size_t w = 0; w < stepper.waves().size(); ++w)
        if (Status status = read(stepper, w); !status.ok()) return status;
    }
  }

  Status read(const Stepper& stepper, size_t number) {
    std::vector<int32_t> row(below(40) == 0 ? below(5) : 64);
    if (Status status = stepper.write_wave(number, {row.data(), row.size()}); !status.ok())
      return status;
    return operands(stepper, number);
  }

  // One for each import; now and then of the wrong type, too short or missing.
  std::vector<Array> tapes(const Program& program, std::vector<std::vector<int64_t>>& data,
                           std::vector<int64_t>& dims) {
    std::vector<Array> out;
    const size_t count = program.imports.size() - (below(200) == 0 && !program.imports.empty());
    dims.assign(count, 0);
    data.resize(count);
    for (size_t i = 0; i < count; ++i) {
      dims[i] = below(200) == 0 ? below(50) : kTapeRows;
      const auto from = anything_.begin() + below(kTapeRows);
      data[i].assign(from, from + dims[i]);
      const DType dtype = below(200) == 0 ? DType::kF64 : program.imports[i].dtype;
      out.push_back({data[i].data(), dtype, {&dims[i], 1}});
    }
    return out;
  }

  Status operands(const Stepper& stepper, size_t number) {
    const auto widths = static_cast<int32_t>(stepper.widths().size());
    const Cell& cell = stepper.program().cells[stepper.waves()[number].kind / widths];
    std::vector<DType> types(cell.inputs.size(), DType::kI32);
    types.insert(types.end(), cell.exports.begin(), cell.exports.end());
    types.push_back(DType::kI32);
    if (below(100) == 0) types.push_back(DType::kI32);
    const int64_t rows = below(100) == 0 ? below(4) : 16;
    std::vector<std::vector<int64_t>> data(types.size(), std::vector<int64_t>(rows));
    std::vector<Array> buffers;
    for (size_t i = 0; i < types.size(); ++i)
      buffers.push_back({data[i].data(), types[i], {&rows, 1}});
    return stepper.write_operands(number, buffers);
  }

  void noise(Words& words) {
    words.assign(below(200), 0);
    for (int64_t& w : words) w = word();
    if (words.size() > 1 && below(2) == 0) words[0] = kMagic, words[1] = kVersion;
  }

  // Buffers of the right types, some of them too small.
  void fill_some(const Schedule& schedule) {
    TableBuffers tables(schedule);
    const bool shrink = below(2) == 0;
    if (shrink) tables.shrink(below(tables.size()));
    const Status status = fill(schedule, tables.arrays());
    CHECK(shrink || status.ok());
  }

  std::mt19937 random_;
  Words room_;
  Words anything_;  // words that tapes hold, from some place on
};

}  // namespace
}  // namespace jaxrec

int main(int argc, char** argv) {
  const uint32_t rounds = argc > 1 ? std::atoi(argv[1]) : 3000;
  jaxrec::Fuzzer fuzzer(argc > 2 ? std::atoi(argv[2]) : 1);
  for (uint32_t i = 0; i < rounds; ++i) fuzzer.round(i), fuzzer.stepped_round(i);
  std::printf("%ld accepted, %ld refused\n", static_cast<long>(fuzzer.accepted),
              static_cast<long>(fuzzer.refused));
  CHECK(fuzzer.accepted > 0 && fuzzer.refused > 0);
  return jaxrec::report("fuzz_program");
}
