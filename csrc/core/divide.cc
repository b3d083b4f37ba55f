#include "core/divide.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

#include "core/processors.h"

namespace jaxrec {
namespace {

constexpr size_t kPieces = 4;       // subtrees a shard, at least, where the tree allows
constexpr size_t kMostSplits = 64;  // frames a shard that are taken apart

class Divider {
 public:
  Divider(const Schedule& schedule, const DivideOptions& options, Division& out)
      : schedule_(schedule),
        program_(schedule.program),
        options_(options),
        cells_(static_cast<int32_t>(schedule.program.cells.size())),
        out_(out) {}

  Status run() {
    if (Status status = check(); !status.ok()) return status;
    shard_ = find_shards(schedule_, row_costs(), options_.shards);
    out_.domains = options_.shards * num_devices();
    out_.num_widths = static_cast<int64_t>(options_.widths.size());
    out_.values = schedule_.values;
    make_program();
    place_firings();
    carry_inputs();
    carry_results();
    order();
    return lay_out(out_.program, *schedule_.frames, out_.values,
                   {{options_.widths, costs()}, schedule_.collect}, out_.layout);
  }

 private:
  Status check() const {
    const size_t n = program_.cells.size();
    if (options_.shards < 1 || options_.cell_device.size() != n ||
        options_.costs.size() != n * options_.widths.size() || options_.widths.size() == 0)
      return internal_error("a division needs shards, and a device and costs for each cell");
    for (int32_t device : options_.cell_device)
      if (device < 0 || device >= kMostWorkers / options_.shards)
        return internal_error("the number of a device is out of range");
    return {};
  }

  int32_t num_devices() const {
    int32_t most = 0;
    for (int32_t device : options_.cell_device) most = std::max(most, device);
    return most + 1;
  }

  // The cost of a row where it costs least.
  std::vector<double> row_costs() const {
    std::vector<double> out;
    const size_t n = options_.widths.size();
    for (int32_t c = 0; c < cells_; ++c) {
      double least = std::numeric_limits<double>::infinity();
      for (size_t w = 0; w < n; ++w)
        least =
            std::min(least, options_.costs[c * n + w] / static_cast<double>(options_.widths[w]));
      out.push_back(least);
    }
    return out;
  }

  std::vector<double> costs() const {
    std::vector<double> out;
    for (int32_t d = 0; d < out_.domains; ++d)
      out.insert(out.end(), options_.costs.begin(), options_.costs.end());
    out.resize((out_.program.cells.size()) * options_.widths.size(), options_.copy_cost);
    return out;
  }

  void make_program() {
    out_.program = program_;
    out_.program.num_classes = program_.num_classes * out_.domains;
    for (int32_t d = 1; d < out_.domains; ++d)
      for (Cell cell : program_.cells) {
        for (int32_t& c : cell.inputs) c += d * program_.num_classes;
        for (int32_t& c : cell.outputs) c += d * program_.num_classes;
        out_.program.cells.push_back(std::move(cell));
      }
  }

  void place_firings() {
    for (Firing& firing : out_.values.firings)
      firing.cell +=
          cells_ * (options_.cell_device[firing.cell] * options_.shards + shard_[firing.frame]);
  }

  int32_t domain(const Firing& firing) const { return firing.cell / cells_; }

  // Where a value of the whole schedule is, and its class there.
  std::pair<int32_t, int32_t> home(ValueId value) const {
    if (value < 0) return {0, program_.entry_function().data[~value / schedule_.layout.lanes]};
    const Firing& maker = out_.values.firings[schedule_.values.producers[value]];
    const Firing& firing = schedule_.values.firings[schedule_.values.producers[value]];
    return {domain(maker), program_.cells[firing.cell].outputs[value - firing.output]};
  }

  void carry_inputs() {
    for (size_t i = 0; i < schedule_.values.firings.size(); ++i) {
      const Firing& firing = schedule_.values.firings[i];
      const int32_t to = domain(out_.values.firings[i]);
      const size_t inputs = program_.cells[firing.cell].inputs.size();
      for (size_t k = 0; k < inputs; ++k) {
        const ValueId value = carried(out_.values.inputs[firing.input + k], to);
        out_.values.inputs[firing.input + k] = value;  // `carried` adds inputs: no reference
      }
    }
  }

  // What is read from outside is read from domain 0.
  void carry_results() {
    const FrameTable& frames = *schedule_.frames;
    const size_t results = program_.entry_function().results.size();
    const auto carry = [&](int32_t frame) {
      for (size_t k = 0; k < results; ++k) {
        ValueId& value = out_.values.results[frames.starts[frame].result + k];
        value = carried(value, 0);
      }
    };
    for (int32_t frame : schedule_.layout.collected) carry(frame);
    if (!schedule_.collect)
      for (int32_t frame : frames.roots) carry(frame);
  }

  // The value in another domain.
  ValueId carried(ValueId value, int32_t to) {
    const auto [from, tape_class] = home(value);
    if (from == to) return value;
    const auto [place, is_new] = carried_.try_emplace({value, to}, 0);
    if (!is_new) return place->second;
    Values& values = out_.values;
    const int32_t number = static_cast<int32_t>(values.firings.size());
    place->second = static_cast<ValueId>(values.producers.size());
    values.firings.push_back({copy_cell({from, to, tape_class}), frame_of(value),
                              static_cast<int32_t>(values.inputs.size()), place->second});
    values.inputs.push_back(value);
    values.producers.push_back(number);
    return place->second;
  }

  int32_t frame_of(ValueId value) const {
    if (value < 0) return schedule_.frames->roots[~value % schedule_.layout.lanes];
    return schedule_.values.firings[schedule_.values.producers[value]].frame;
  }

  int32_t copy_cell(const Copy& copy) {
    const auto [place, is_new] =
        copy_cells_.try_emplace({copy.source, copy.target, copy.tape_class}, 0);
    if (is_new) {
      place->second = static_cast<int32_t>(out_.program.cells.size());
      out_.program.cells.push_back({{copy.source * program_.num_classes + copy.tape_class},
                                    {copy.target * program_.num_classes + copy.tape_class},
                                    {}});
      out_.copies.push_back(copy);
    }
    return place->second;
  }

  // A copy comes right after what it copies, those of arguments first of all.
  void order() {
    const size_t whole = schedule_.values.firings.size();
    const std::vector<Firing>& firings = out_.values.firings;
    std::vector<int32_t> first(whole + 1, -1), next(firings.size(), -1);
    for (size_t i = firings.size(); i-- > whole;) {
      const ValueId value = out_.values.inputs[firings[i].input];
      int32_t& head = first[value < 0 ? whole : schedule_.values.producers[value]];
      next[i] = std::exchange(head, static_cast<int32_t>(i));
    }
    std::vector<int32_t>& executed = out_.values.executed;
    executed.clear();
    const auto add_copies = [&](size_t from) {
      for (int32_t i = first[from]; i >= 0; i = next[i]) executed.push_back(i);
    };
    add_copies(whole);
    for (int32_t i : schedule_.values.executed) {
      executed.push_back(i);
      add_copies(i);
    }
  }

  const Schedule& schedule_;
  const Program& program_;
  const DivideOptions& options_;
  const int32_t cells_;
  Division& out_;
  std::vector<int32_t> shard_;  // of each frame
  std::map<std::pair<ValueId, int32_t>, ValueId> carried_;
  std::map<std::tuple<int32_t, int32_t, int32_t>, int32_t> copy_cells_;
};

// What the firings of a frame and of all below it cost.
std::vector<double> subtree_costs(const Schedule& schedule, const std::vector<double>& weights) {
  std::vector<double> cost(schedule.frames->size(), 0.0);
  for (const Firing& firing : schedule.values.firings) cost[firing.frame] += weights[firing.cell];
  for (int32_t i = schedule.frames->size(); i-- > 0;)
    if (const int32_t parent = schedule.frames->parents[i]; parent >= 0) cost[parent] += cost[i];
  return cost;
}

// Subtrees that together are nearly the whole work, none of them too large.
std::vector<std::pair<double, int32_t>> pieces(const FrameTable& frames,
                                               const std::vector<double>& cost, int32_t shards) {
  std::priority_queue<std::pair<double, int32_t>> queue;
  double total = 0;
  for (int32_t root : frames.roots) {
    total += cost[root];
    queue.emplace(cost[root], -root);
  }
  std::vector<std::pair<double, int32_t>> out;
  const double most = total / static_cast<double>(kPieces * shards);
  size_t splits = kMostSplits * shards;
  while (!queue.empty()) {
    const int32_t frame = -queue.top().second;
    queue.pop();
    const int32_t calls = frames.outline(frame).num_calls;
    if (cost[frame] <= most || calls == 0 || splits == 0) {
      out.emplace_back(cost[frame], frame);
      continue;
    }
    --splits;
    for (int32_t c = 0; c < calls; ++c) {
      const int32_t child = frames.children[frames.starts[frame].child + c];
      // A shared call belongs to the frame that makes it first.
      if (frames.parents[child] == frame) queue.emplace(cost[child], -child);
    }
  }
  return out;
}

}  // namespace

std::vector<int32_t> find_shards(const Schedule& schedule, const std::vector<double>& weights,
                                 int32_t shards) {
  const FrameTable& frames = *schedule.frames;
  std::vector<int32_t> shard(frames.size(), 0);
  if (shards <= 1) return shard;
  const std::vector<double> cost = subtree_costs(schedule, weights);
  std::vector<std::pair<double, int32_t>> parts = pieces(frames, cost, shards);
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  // The largest first, each to the shard that has least.
  std::vector<double> load(shards, 0.0);
  load[0] = -1e-9;
  std::vector<int32_t> dealt(frames.size(), -1);
  for (const auto& [weight, frame] : parts) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += weight;
    dealt[frame] = static_cast<int32_t>(least - load.begin());
  }
  for (int32_t i = 0; i < frames.size(); ++i)
    shard[i] = dealt[i] >= 0 ? dealt[i] : frames.parents[i] >= 0 ? shard[frames.parents[i]] : 0;
  return shard;
}

Status divide(const Schedule& schedule, const DivideOptions& options, Division& out) {
  return Divider(schedule, options, out).run();
}

void Division::replace(Schedule& schedule) && {
  schedule.program = std::move(program);
  schedule.values = std::move(values);
  schedule.layout = std::move(layout);
  schedule.num_widths = num_widths;
}

double estimate(const Layout& layout, int32_t domains, const std::vector<Copy>& copies,
                size_t num_widths, const Timing& timing) {
  std::vector<double> free(domains, 0.0);
  double total = 0, last = 0;
  for (const Wave& wave : layout.waves) {
    const bool is_copy = wave.cell >= timing.cells * domains;
    const Copy copy = is_copy ? copies[wave.cell - timing.cells * domains] : Copy{};
    const int32_t a = is_copy ? copy.source : wave.cell / timing.cells;
    const int32_t b = is_copy ? copy.target : a;
    const double cost = is_copy ? timing.copy_cost
                                : timing.costs[wave.cell % timing.cells * num_widths + wave.width];
    last = std::max(last, free[a] = free[b] = std::max(free[a], free[b]) + cost);
    total += cost;
  }
  return std::max(last, total / timing.workers);
}

}  // namespace jaxrec
