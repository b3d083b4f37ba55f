#include <cstdint>
#include <utility>
#include <vector>

#include "core/kept_tables.h"
#include "tests/check.h"

namespace jaxrec {
namespace {

using Ints = std::vector<int32_t>;

struct Vector {
  explicit Vector(Ints values)
      : elements(std::move(values)), dims{static_cast<int64_t>(elements.size())} {}
  Array array() { return {elements.data(), DType::kI32, dims}; }

  Ints elements;
  std::vector<int64_t> dims;
};

std::vector<Array> arrays(std::vector<Vector>& vectors) {
  std::vector<Array> out;
  for (Vector& vector : vectors) out.push_back(vector.array());
  return out;
}

// Whether a plan of `operand` is kept; then its tables are checked.
bool is_kept(const KeptTables& kept, Ints operand, const Ints& table) {
  std::vector<Vector> operands{Vector(std::move(operand))};
  std::vector<Vector> tables{Vector(Ints(table.size() + 2, -1))};
  std::vector<int64_t> written;
  if (!kept.write(arrays(operands), arrays(tables), written)) return false;
  Ints expected = table;
  expected.insert(expected.end(), 2, -1);
  CHECK(tables[0].elements == expected);
  CHECK(written == std::vector<int64_t>{static_cast<int64_t>(table.size())});
  return true;
}

void note(KeptTables& kept, Ints operand, Ints table) {
  const std::vector<int64_t> written{static_cast<int64_t>(table.size())};
  table.push_back(99);  // a buffer has more room than a schedule takes
  std::vector<Vector> operands{Vector(std::move(operand))}, tables{Vector(std::move(table))};
  kept.note(arrays(operands), arrays(tables), written);
}

void test_what_comes_again_is_kept_the_second_time() {
  KeptTables kept;
  CHECK(!is_kept(kept, {1, 2}, {5, 6, 7}));
  note(kept, {1, 2}, {5, 6, 7});
  CHECK(!is_kept(kept, {1, 2}, {5, 6, 7}));
  note(kept, {1, 2}, {5, 6, 7});
  CHECK(is_kept(kept, {1, 2}, {5, 6, 7}));
  CHECK(is_kept(kept, {1, 2}, {5, 6, 7}));
  CHECK(!is_kept(kept, {1, 3}, {5, 6, 7}));
  CHECK(!is_kept(kept, {1, 2, 3}, {5, 6, 7}));
}

void test_the_last_counts() {
  KeptTables kept;
  for (int i = 0; i < 2; ++i) note(kept, {1}, {5});
  note(kept, {2}, {6});
  CHECK(!is_kept(kept, {1}, {5}));
  CHECK(!is_kept(kept, {2}, {6}));
  note(kept, {1}, {5});
  CHECK(!is_kept(kept, {1}, {5}));
  note(kept, {1}, {5});
  CHECK(is_kept(kept, {1}, {5}));
}

void test_large_operands_of_small_tables_are_not_copied() {
  KeptTables kept;
  const Ints large(1 << 16, 3), small(1 << 8, 3), tables(1 << 15, 4);
  for (int i = 0; i < 2; ++i) note(kept, large, {5});
  CHECK(!is_kept(kept, large, {5}));
  for (int i = 0; i < 2; ++i) note(kept, small, {5});
  CHECK(is_kept(kept, small, {5}));
  for (int i = 0; i < 2; ++i) note(kept, large, tables);
  CHECK(is_kept(kept, large, tables));
}

void test_nothing_in_it() {
  KeptTables kept;
  for (int i = 0; i < 2; ++i) note(kept, {}, {});
  CHECK(is_kept(kept, {}, {}));
}

}  // namespace
}  // namespace jaxrec

int main() {
  jaxrec::test_what_comes_again_is_kept_the_second_time();
  jaxrec::test_the_last_counts();
  jaxrec::test_large_operands_of_small_tables_are_not_copied();
  jaxrec::test_nothing_in_it();
  return jaxrec::report("kept tables");
}
