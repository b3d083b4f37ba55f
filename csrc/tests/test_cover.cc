#include <algorithm>
#include <limits>
#include <random>
#include <tuple>
#include <vector>

#include "core/cover.h"
#include "tests/check.h"

namespace jaxrec {
namespace {

struct Total {
  double cost = 0;
  int64_t rows = 0;
};

Total total(const std::vector<int32_t>& waves, const std::vector<int64_t>& widths,
            const std::vector<double>& costs) {
  Total out;
  for (int32_t wave : waves) {
    out.cost += costs[wave];
    out.rows += widths[wave];
  }
  return out;
}

// (cost, waves) of the best cover, by plain dynamic programming up to n.
std::pair<double, int64_t> best_cover(int64_t n, const std::vector<int64_t>& widths,
                                      const std::vector<double>& costs) {
  std::vector<std::pair<double, int64_t>> best = {{0.0, 0}};
  for (int64_t rows = 1; rows <= n; ++rows) {
    best.push_back({std::numeric_limits<double>::infinity(), 0});
    for (size_t i = 0; i < widths.size(); ++i) {
      auto [cost, waves] = best[std::max<int64_t>(0, rows - widths[i])];
      best.back() = std::min(best.back(), {cost + costs[i], waves + 1});
    }
  }
  return best[n];
}

void check_cut(Cover& cover, int64_t n, const std::vector<int64_t>& widths,
               const std::vector<double>& costs) {
  std::vector<int32_t> waves;
  cover.cut(n, waves);
  const Total all = total(waves, widths, costs);
  const auto [cost, count] = best_cover(n, widths, costs);
  CHECK(all.cost == cost);
  CHECK(static_cast<int64_t>(waves.size()) == count);
  CHECK(all.rows >= n);
  CHECK(waves.empty() || all.rows - widths[waves.back()] < n);
  CHECK(std::is_sorted(waves.rbegin(), waves.rend()));
  CHECK(waves.empty() || cover.widest(n) == waves.front());
}

void equals_dynamic_programming() {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> widths;
    std::vector<double> costs;
    for (int64_t i = 0, width = 0, n = 1 + random() % 4; i < n; ++i) {
      widths.push_back(width += 1 + random() % 12);
      const bool never = i > 0 && random() % 4 == 0;
      costs.push_back(never ? std::numeric_limits<double>::infinity() : 1.0 + random() % 20);
    }
    Cover cover(widths, costs);
    for (int64_t n : {0, 1, 2, 7, 40, 41, 300, 1000, 999, 1733}) check_cut(cover, n, widths, costs);
  }
}

void large_groups_are_cut_at_once() {
  const std::vector<int64_t> widths = {32, 256};
  const std::vector<double> costs = {1.0, 4.0};
  Cover cover(widths, costs);
  std::vector<int32_t> waves;
  cover.cut(1'000'000, waves);
  CHECK(waves.size() == 3906 + 2 && waves[3905] == 1 && waves[3906] == 0);  // 64 rows are left over
}

}  // namespace
}  // namespace jaxrec

int main() {
  jaxrec::equals_dynamic_programming();
  jaxrec::large_groups_are_cut_at_once();
  return jaxrec::report("cover");
}
