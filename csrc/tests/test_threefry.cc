#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/threefry.h"
#include "tests/check.h"

namespace jaxrec {
namespace {

struct Blocks {
  std::vector<uint32_t> high, low;
};

Blocks made(const std::vector<uint32_t>& keys, const std::vector<uint32_t>& first, int64_t count) {
  const size_t size = first.size() * static_cast<size_t>(count);
  Blocks out = {std::vector<uint32_t>(size), std::vector<uint32_t>(size)};
  threefry(keys.data(), first.data(), static_cast<int64_t>(first.size()), count, out.high.data(),
           out.low.data());
  return out;
}

// The first is a known answer of the paper's authors; the others are of jax.random.
void test_known_blocks() {
  const Blocks zero = made({0, 0}, {0}, 1);
  CHECK(zero.high[0] == 0x6b200159 && zero.low[0] == 0x99ba4efe);
  const Blocks one = made({0, 1}, {7}, 3);
  CHECK(one.high == std::vector<uint32_t>({0x38e71e7a, 0x7ad47022, 0x168e7f39}));
  CHECK(one.low == std::vector<uint32_t>({0xef6ba66e, 0x181604a4, 0xb55a4051}));
}

void test_each_key_has_its_own() {
  const Blocks both = made({0, 1, 0xffffffff, 5}, {7, 0xffffffff}, 3);
  const Blocks one = made({0, 1}, {7}, 3), other = made({0xffffffff, 5}, {0xffffffff}, 3);
  CHECK(std::vector<uint32_t>(both.high.begin(), both.high.begin() + 3) == one.high);
  CHECK(std::vector<uint32_t>(both.low.begin() + 3, both.low.end()) == other.low);
  // Counters wrap around.
  CHECK(other.high[1] == made({0xffffffff, 5}, {0}, 1).high[0]);
  CHECK(made({}, {}, 3).high.empty() && made({0, 1}, {7}, 0).low.empty());
}

}  // namespace
}  // namespace jaxrec

int main() {
  jaxrec::test_known_blocks();
  jaxrec::test_each_key_has_its_own();
  return jaxrec::report("threefry");
}
