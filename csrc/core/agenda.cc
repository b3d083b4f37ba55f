#include "core/agenda.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/ready_set.h"

namespace jaxrec {
namespace {

class Scheduler {
 public:
  Scheduler(const Program& program, const Values& values, const WaveOptions& options)
      : program_(program), values_(values), widths_(options.widths) {
    const size_t n = widths_.size(), kinds = options.costs.size() / n;
    for (size_t i = 0; i < kinds; ++i) {
      costs_.emplace_back(options.costs.begin() + i * n, n);
      covers_.emplace_back(widths_, costs_.back());
    }
  }

  Agenda run() {
    start();
    find_limits();
    for (int32_t cell; (cell = next_cell()) >= 0;) fire(cell);
    return std::move(agenda_);
  }

  Agenda run_sweeps() {
    start();
    while (next_cell() >= 0) sweep();
    return std::move(agenda_);
  }

 private:
  int32_t num_firings() const { return static_cast<int32_t>(values_.firings.size()); }

  // The inputs of a firing: [begin, end) in Values::inputs.
  const ValueId* inputs(int32_t firing) const {
    return values_.inputs.data() + values_.firings[firing].input;
  }
  size_t num_inputs(int32_t firing) const {
    return program_.cells[values_.firings[firing].cell].inputs.size();
  }

  // Calls fun(producer) for the firings whose outputs a firing reads. Inputs side by side often
  // come from one firing, which is then told once.
  template <class Fun>
  void each_producer(int32_t firing, Fun fun) const {
    const ValueId* in = inputs(firing);
    int32_t last = -1;
    for (const ValueId* end = in + num_inputs(firing); in != end; ++in) {
      if (*in < 0) continue;
      const int32_t from = values_.producers[*in];
      if (from != last) fun(from);
      last = from;
    }
  }

  // Who waits for each firing.
  void find_consumers() {
    consumer_start_.assign(num_firings() + 2, 0);
    waiting_.assign(num_firings(), 0);
    int32_t* count = consumer_start_.data() + 2;
    for (int32_t i = 0; i < num_firings(); ++i)
      each_producer(i, [&](int32_t from) { ++waiting_[i], ++count[from]; });
    for (int32_t i = 0; i < num_firings(); ++i) count[i] += count[i - 1];
    consumers_.resize(count[num_firings() - 1]);
    for (int32_t i = 0; i < num_firings(); ++i)
      each_producer(i, [&](int32_t from) { consumers_[count[from - 1]++] = i; });
  }

  // From the last executed to the first: whoever waits for a firing is executed after it.
  void find_ranks() {
    rank_.assign(num_firings(), 0);
    for (auto i = values_.executed.rbegin(); i != values_.executed.rend(); ++i)
      each_producer(*i, [&](int32_t from) { rank_[from] = std::max(rank_[from], rank_[*i] + 1); });
  }

  // Which of the costs are a cell's.
  size_t kind(int32_t cell) const { return covers_.size() == 1 ? 0 : static_cast<size_t>(cell); }

  void find_limits() {
    const size_t ranks = 1 + *std::max_element(rank_.begin(), rank_.end());
    std::vector<std::vector<int32_t>> histograms(covers_.size(), std::vector<int32_t>(ranks, 0));
    for (int32_t i = 0; i < num_firings(); ++i)
      if (waiting_[i] > 0) ++histograms[kind(values_.firings[i].cell)][rank_[i]];
    for (size_t k = 0; k < covers_.size(); ++k)
      limits_.push_back(best_width(histograms[k], costs_[k]));
  }

  // The width that makes the firings that wait for others cheapest: waves of a width are at least
  // as many as any tail of the ranks needs.
  int32_t best_width(const std::vector<int32_t>& histogram, Span<const double> costs) const {
    size_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (size_t w = 0; w < widths_.size(); ++w) {
      int64_t waves = 0, above = 0;
      for (size_t rank = histogram.size(); rank-- > 0;) {
        above += histogram[rank];
        if (above > 0)
          waves =
              std::max(waves, (above + widths_[w] - 1) / widths_[w] + static_cast<int64_t>(rank));
      }
      const double cost = static_cast<double>(waves) * costs[w];
      if (cost < least) least = cost, best = w;
    }
    return static_cast<int32_t>(widths_[best]);
  }

  void start() {
    find_consumers();
    find_ranks();
    find_places();
    for (int32_t i = 0; i < num_firings(); ++i)
      if (waiting_[i] == 0) ready(i);
    agenda_.order.reserve(num_firings());
  }

  // Every firing's place among its cell's: the greatest rank first, of equal ranks the least
  // number.
  void find_places() {
    std::vector<int32_t> start(2 + *std::max_element(rank_.begin(), rank_.end()), 0);
    for (int32_t rank : rank_) ++start[rank];
    for (size_t rank = start.size() - 1; rank > 0; --rank) start[rank - 1] += start[rank];
    std::vector<int32_t> by_rank(num_firings());
    for (int32_t i = 0; i < num_firings(); ++i) by_rank[start[rank_[i] + 1]++] = i;
    place_.resize(num_firings());
    places_.resize(program_.cells.size());
    for (int32_t i : by_rank) {
      std::vector<int32_t>& cell = places_[values_.firings[i].cell];
      place_[i] = static_cast<int32_t>(cell.size());
      cell.push_back(i);
    }
    for (const std::vector<int32_t>& cell : places_) {
      ready_.emplace_back(static_cast<int32_t>(cell.size()));
      unfired_.push_back(static_cast<int32_t>(cell.size()));
    }
  }

  void ready(int32_t firing) { ready_[values_.firings[firing].cell].add(place_[firing]); }

  int32_t best_rank(int32_t cell) const { return rank_[places_[cell][ready_[cell].least()]]; }

  // A cell of which everything is ready gains nothing by waiting: first of all. Then the critical
  // path.
  int32_t next_cell() const {
    int32_t best = -1;
    for (size_t c = 0; c < ready_.size(); ++c) {
      if (ready_[c].empty()) continue;
      const int32_t cell = static_cast<int32_t>(c);
      if (is_complete(cell)) return cell;
      if (best < 0 || best_rank(cell) > best_rank(best)) best = cell;
    }
    return best;
  }

  bool is_complete(int32_t cell) const { return ready_[cell].size() == unfired_[cell]; }

  void fire(int32_t cell) {
    const int32_t count = is_complete(cell) ? ready_[cell].size()
                                            : std::min(ready_[cell].size(), limits_[kind(cell)]);
    const int32_t first = take(cell, count);
    cut(cell, first, count);
    for (int32_t i = first; i < first + count; ++i) release(agenda_.order[i]);
  }

  // Takes ready firings out; where they begin in the order.
  int32_t take(int32_t cell, int32_t count) {
    const auto first = static_cast<int32_t>(agenda_.order.size());
    for (int32_t i = 0; i < count; ++i) agenda_.order.push_back(places_[cell][ready_[cell].take()]);
    unfired_[cell] -= count;
    return first;
  }

  void cut(int32_t cell, int32_t begin, int32_t count) {
    covers_[kind(cell)].cut(count, cut_);
    int32_t first = begin;
    for (int32_t width : cut_) {
      const int32_t size = std::min(static_cast<int32_t>(widths_[width]), begin + count - first);
      agenda_.waves.push_back({cell, width, first, size});
      first += size;
    }
  }

  // A wave of each cell; what one of them makes ready, those after it may take.
  void sweep() {
    for (size_t c = 0; c < ready_.size(); ++c) {
      const auto cell = static_cast<int32_t>(c);
      const int32_t count = std::min(ready_[c].size(), static_cast<int32_t>(widths_[0]));
      const int32_t first = take(cell, count);
      agenda_.waves.push_back({cell, 0, first, count});
      for (int32_t i = first; i < first + count; ++i) release(agenda_.order[i]);
    }
  }

  void release(int32_t firing) {
    for (int32_t i = consumer_start_[firing]; i < consumer_start_[firing + 1]; ++i) {
      const int32_t to = consumers_[i];
      if (--waiting_[to] == 0) ready(to);
    }
  }

  const Program& program_;
  const Values& values_;
  Span<const int64_t> widths_;
  std::vector<Span<const double>> costs_;  // of all cells, or a cell
  std::vector<Cover> covers_;              // likewise
  Agenda agenda_;
  std::vector<int32_t> consumer_start_;  // of each firing, in consumers_
  std::vector<int32_t> consumers_;
  std::vector<int32_t> waiting_;  // inputs of each firing that are not there yet
  std::vector<int32_t> rank_;
  std::vector<std::vector<int32_t>> places_;  // of each cell, the firing at each place
  std::vector<int32_t> place_;                // of each firing
  std::vector<ReadySet> ready_;               // of each cell, places
  std::vector<int32_t> unfired_;              // a cell
  std::vector<int32_t> cut_;
  std::vector<int32_t> limits_;  // firings a wave, of all cells, or a cell
};

}  // namespace

Agenda make_agenda(const Program& program, const Values& values, const WaveOptions& options) {
  if (values.firings.empty()) return {};
  Scheduler scheduler(program, values, options);
  return options.sweeps ? scheduler.run_sweeps() : scheduler.run();
}

}  // namespace jaxrec
