// Malformed programs must be refused and never crash: random words, and valid programs with words
// changed, cut or repeated. What is accepted must schedule and fill like any program.
//
//   fuzz_program [rounds] [seed]
#include <cstdlib>
#include <random>
#include <vector>

#include "tests/assembler.h"
#include "tests/check.h"
#include "tests/random_program.h"

namespace jaxrec {
namespace {

class Fuzzer {
 public:
  explicit Fuzzer(uint32_t seed) : random_(seed) {}

  void round(uint32_t number) {
    Job job = RandomProgram(number).job();
    job.call_limit = 500;
    for (int64_t changes = below(4); changes > 0; --changes) change(job.words);
    if (below(20) == 0) noise(job.words);
    Schedule schedule;
    const Status status = job.run(1 + below(2), schedule);
    ++(status.ok() ? accepted : refused);
    if (status.ok()) fill_some(schedule);
    else CHECK(!status.text.empty());
  }

  int64_t accepted = 0, refused = 0;

 private:
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

  void noise(Words& words) {
    words.assign(below(200), 0);
    for (int64_t& w : words) w = word();
    if (words.size() > 1 && below(2) == 0) words[0] = kMagic, words[1] = kVersion;
  }

  // Buffers of the right types, some of them too small.
  void fill_some(const Schedule& schedule) {
    sizes_.clear();
    data_.clear();
    dims_.clear();
    add_sizes(schedule);
    const bool shrink = below(2) == 0;
    if (shrink) sizes_[below(static_cast<int64_t>(sizes_.size()))].rows /= 2;
    std::vector<Array> buffers;
    for (const Size& size : sizes_) {
      data_.emplace_back(8 * size.rows * size.columns);
      dims_.push_back({size.rows, size.columns});
    }
    for (size_t i = 0; i < sizes_.size(); ++i)
      buffers.push_back({data_[i].data(),
                         static_cast<DType>(sizes_[i].dtype),
                         {dims_[i].data(), i == 1 ? 2u : 1u}});
    const Status status = fill(schedule, buffers);
    CHECK(shrink || status.ok());
  }

  void add_sizes(const Schedule& schedule) {
    const Layout& layout = schedule.layout;
    const Function& entry = schedule.program.entry_function();
    const int64_t pad = 2 * layout.pad, calls = static_cast<int64_t>(layout.collected.size());
    add(kInt, info_size(schedule));
    add(kInt, static_cast<int64_t>(layout.waves.size()), 3 + layout.max_in + layout.max_out);
    for (size_t i = 0; i < schedule.program.cells.size(); ++i) {
      const Cell& cell = schedule.program.cells[i];
      const int64_t rows = layout.cell_rows[i] + pad;
      for (size_t k = 0; k < cell.inputs.size(); ++k) add(kInt, rows);
      for (size_t k = 0; k < cell.outputs.size(); ++k) add(kInt, rows + 1);
      for (DType dtype : cell.exports) add(static_cast<int64_t>(dtype), rows);
      add(kInt, rows);
    }
    for (size_t k = 0; k < entry.data.size(); ++k) add(kInt, layout.lanes + 1);
    for (size_t k = 0; k < entry.results.size(); ++k) add(kInt, layout.lanes);
    for (size_t k = 0; k < entry.results.size() && schedule.collect; ++k) add(kInt, calls);
    for (int32_t rows : layout.read_rows) add(kInt, rows + pad);
    if (!schedule.collect) return;
    add(kInt, calls);
    for (DType dtype : entry.control) add(static_cast<int64_t>(dtype), calls);
  }

  struct Size {
    int64_t dtype, rows, columns;
  };
  void add(int64_t dtype, int64_t rows, int64_t columns = 1) {
    sizes_.push_back({dtype, rows, columns});
  }

  std::mt19937 random_;
  std::vector<Size> sizes_;
  std::vector<std::vector<char>> data_;
  std::vector<std::vector<int64_t>> dims_;
};

}  // namespace
}  // namespace jaxrec

int main(int argc, char** argv) {
  const uint32_t rounds = argc > 1 ? std::atoi(argv[1]) : 3000;
  jaxrec::Fuzzer fuzzer(argc > 2 ? std::atoi(argv[2]) : 1);
  for (uint32_t i = 0; i < rounds; ++i) fuzzer.round(i);
  std::printf("%ld accepted, %ld refused\n", static_cast<long>(fuzzer.accepted),
              static_cast<long>(fuzzer.refused));
  CHECK(fuzzer.accepted > 0 && fuzzer.refused > 0);
  return jaxrec::report("fuzz_program");
}
