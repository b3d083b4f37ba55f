#include <initializer_list>
#include <random>
#include <set>

#include "core/ready_set.h"
#include "tests/check.h"

namespace jaxrec {
namespace {

void equals_an_ordered_set(int32_t bound, uint32_t seed) {
  std::mt19937 random(seed);
  ReadySet ready(bound);
  std::set<int32_t> expected;
  for (int step = 0; step < 4000; ++step) {
    const int32_t number = static_cast<int32_t>(random() % bound);
    if (random() % 2 == 0 && expected.insert(number).second) ready.add(number);
    CHECK(ready.size() == static_cast<int32_t>(expected.size()));
    if (expected.empty() || random() % 3 == 0) continue;
    CHECK(ready.least() == *expected.begin());
    CHECK(ready.take() == *expected.begin());
    expected.erase(expected.begin());
  }
}

}  // namespace
}  // namespace jaxrec

int main() {
  for (int32_t bound : {1, 63, 64, 65, 4096, 4097, 300'000})
    jaxrec::equals_an_ordered_set(bound, 5);
  CHECK(jaxrec::ReadySet(0).empty());
  return jaxrec::report("ready_set");
}
