#include "core/cover.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace jaxrec {

// With t the thrifty width and g the greatest common divisor of all widths, some best cover has
// fewer than t / g waves of other widths: among any t / g of them some add up to a multiple of t
// (two of their running sums agree modulo t), and waves of width t cover that for no more. So all
// but (t / g) * widest rows can be covered by thrifty waves first.
Cover::Cover(Span<const int64_t> widths, Span<const double> costs)
    : widths_(widths), costs_(costs), best_(1, Best{0.0, 0, 0}) {
  for (size_t i = 0; i < widths.size(); ++i) {
    unit_ = std::gcd(unit_, widths[i]);
    // a / b <= c / d without a rounded quotient; the later, wider one wins a tie.
    if (costs[i] * widths[thrifty_] <= costs[thrifty_] * widths[i])
      thrifty_ = static_cast<int32_t>(i);
  }
  exact_below_ = widths[thrifty_] / unit_ * (widths[widths.size() - 1] / unit_);
}

void Cover::extend(int64_t units) {
  for (int64_t n = static_cast<int64_t>(best_.size()); n <= units; ++n) {
    Best best{};
    for (size_t i = 0; i < widths_.size(); ++i) {
      const Best& rest = best_[std::max<int64_t>(0, n - widths_[i] / unit_)];
      const double cost = rest.cost + costs_[i];
      const bool better = cost < best.cost || (cost == best.cost && rest.waves + 1 < best.waves);
      if (i == 0 || better) best = {cost, rest.waves + 1, static_cast<int32_t>(i)};
    }
    best_.push_back(best);
  }
}

// How many waves of the thrifty width come first; `units`, of n rows, are those left over.
int64_t Cover::take_thrifty(int64_t n, int64_t& units) const {
  const int64_t width = widths_[thrifty_] / unit_;
  units = (n + unit_ - 1) / unit_;
  const int64_t waves = units > exact_below_ ? (units - exact_below_ + width - 1) / width : 0;
  units -= waves * width;
  return waves;
}

void Cover::cut(int64_t n, std::vector<int32_t>& waves) {
  int64_t units = 0;
  waves.assign(take_thrifty(n, units), thrifty_);
  extend(units);
  for (; units > 0; units -= widths_[best_[units].width] / unit_)
    waves.push_back(best_[units].width);
  std::sort(waves.begin(), waves.end(), std::greater<>());
}

int32_t Cover::widest(int64_t n) {
  int64_t units = 0;
  int32_t found = take_thrifty(n, units) > 0 ? thrifty_ : 0;
  extend(units);
  for (; units > 0; units -= widths_[best_[units].width] / unit_)
    found = std::max(found, best_[units].width);
  return found;
}

}  // namespace jaxrec
