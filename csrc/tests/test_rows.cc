#include <cstdint>
#include <vector>

#include "core/rows.h"
#include "tests/check.h"

namespace jaxrec {
namespace {

const std::vector<float> kTape = {0, 1, 10, 11, 20, 21};  // three rows of two

Status gathered(const std::vector<int32_t>& rows, std::vector<float>& out) {
  out.assign(rows.size() * 2, -1);
  return gather_rows(reinterpret_cast<const char*>(kTape.data()), 3, 2 * sizeof(float), rows,
                     reinterpret_cast<char*>(out.data()));
}

void test_gather() {
  std::vector<float> out;
  CHECK(gathered({2, 0, 2}, out).ok());
  CHECK(out == std::vector<float>({20, 21, 0, 1, 20, 21}));
  CHECK(gathered({}, out).ok());
  CHECK(!gathered({0, 3}, out).ok());
  CHECK(!gathered({-1}, out).ok());
}

Status summed(const std::vector<int32_t>& readers, const std::vector<int32_t>& pointers,
              std::vector<float>& out) {
  out.assign((pointers.size() - 1) * 2, -1);
  return sum_rows(kTape.data(), 3, 2, Span<const int32_t>(readers), Span<const int32_t>(pointers),
                  out.data());
}

void test_sum() {
  std::vector<float> out;
  CHECK(summed({0, 2, 1}, {0, 2, 2, 3}, out).ok());
  CHECK(out == std::vector<float>({20, 22, 0, 0, 10, 11}));
  CHECK(summed({0, 1, 2, 2}, {0, 4}, out).ok());
  CHECK(out == std::vector<float>({50, 54}));
  CHECK(!summed({7}, {0, 1}, out).ok());
  CHECK(!summed({0, 1, 3}, {0, 3}, out).ok());
}

void test_pointers_that_nothing_wrote_are_harmless() {
  std::vector<float> out;
  CHECK(summed({0, 1}, {5, 9, -3, 1}, out).ok());
  CHECK(out == std::vector<float>(6, 0));
}

}  // namespace
}  // namespace jaxrec

int main() {
  jaxrec::test_gather();
  jaxrec::test_sum();
  jaxrec::test_pointers_that_nothing_wrote_are_harmless();
  return jaxrec::report("rows");
}
