// Random native programs give what plain recursion gives, whatever the number of workers; malformed
// ones are refused or run, and never crash.
//
//   fuzz_native [rounds] [seed]
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "tests/check.h"
#include "tests/random_native.h"
#include "tests/scale.h"

namespace jaxrec::native {
namespace {

class Fuzzer {
 public:
  explicit Fuzzer(uint32_t seed) : random_(seed) {}

  void round(uint32_t number) {
    const RandomNative random(number);
    Native program = random.program();
    program.serial_calls = 0;  // threads at the first poll
    std::vector<int32_t> n, x;
    for (int64_t lanes = 1 + below(below(4) == 0 ? 150 : 4); lanes > 0; --lanes) {
      // Three a level of calls: now and then enough calls that threads start.
      n.push_back(static_cast<int32_t>(below(below(8) == 0 ? 28 : 14)));
      x.push_back(static_cast<int32_t>(below(2001)) - 1000);
    }
    std::vector<std::vector<int32_t>> want;
    for (size_t lane = 0; lane < n.size(); ++lane)
      want.push_back(random.expected(n[lane], x[lane]));
    for (int64_t workers : {1, 2, 4}) {
      CHECK(program.run(workers, {n, x}).ok());
      for (size_t lane = 0; lane < n.size(); ++lane)
        for (size_t k = 0; k < want[lane].size(); ++k)
          CHECK(program.results[k][lane] == want[lane][k]);
    }
    Words words = program.encode();
    for (int64_t changes = 1 + below(3); changes > 0; --changes) change(words);
    program.depth_limit = 40;
    program.call_limit = 2'000;
    program.give_up = [] { return true; };  // a changed loop may have no end
    const Status status = program.run_words(words, 1 + below(2), {n, x});
    ++(status.ok() ? accepted : refused);
    CHECK(status.ok() || !status.text.empty());
  }

  int64_t accepted = 0, refused = 0;

 private:
  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(random_); }

  void change(Words& words) {
    if (words.empty()) return;
    const int64_t at = below(static_cast<int64_t>(words.size()));
    switch (below(5)) {
      case 0: words.erase(words.begin() + at); break;
      case 1: words.insert(words.begin() + at, below(12)); break;
      case 2: words.resize(at); break;
      case 3: words[at] += below(3) - 1; break;
      default: words[at] = below(8) == 0 ? int64_t{1} << below(63) : below(20);
    }
  }

  std::mt19937 random_;
};

}  // namespace
}  // namespace jaxrec::native

int main(int argc, char** argv) {
  const uint32_t rounds = argc > 1 ? std::atoi(argv[1]) : jaxrec::kSanitized ? 100 : 500;
  const uint32_t seed = argc > 2 ? std::atoi(argv[2]) : 1;
  jaxrec::native::Fuzzer fuzzer(seed);
  for (uint32_t i = 0; i < rounds; ++i) fuzzer.round(seed * 1'000'003 + i);
  std::printf("%ld accepted, %ld refused\n", static_cast<long>(fuzzer.accepted),
              static_cast<long>(fuzzer.refused));
  CHECK(fuzzer.refused > 0);
  return jaxrec::report("fuzz_native");
}
