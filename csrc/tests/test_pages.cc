#include <cstddef>
#include <cstdlib>
#include <vector>

#include "core/pages.h"
#include "tests/check.h"

namespace jaxrec {
namespace {

void test_contents_stay() {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1} << 18, (size_t{5} << 20) + 17}) {
    std::vector<unsigned char> bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(i * 31);
    use_large_pages(bytes.data(), bytes.size());
    bool same = true;
    for (size_t i = 0; i < size; ++i) same &= bytes[i] == static_cast<unsigned char>(i * 31);
    CHECK(same);
  }
}

void test_memory_that_is_not_mapped_is_harmless() { use_large_pages(nullptr, size_t{1} << 22); }

}  // namespace
}  // namespace jaxrec

int main() {
  jaxrec::test_contents_stay();
  jaxrec::test_memory_that_is_not_mapped_is_harmless();
  return jaxrec::report("pages");
}
