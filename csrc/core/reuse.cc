#include "core/reuse.h"

#include <iterator>
#include <limits>
#include <utility>
#include <vector>

namespace jaxrec {

int32_t RowPool::take(int32_t rows) {
  const auto best = by_size_.lower_bound({rows, std::numeric_limits<int32_t>::min()});
  if (best != by_size_.end()) {
    const auto [size, start] = *best;
    remove(gaps_.find(start));
    if (size > rows) add(start + rows, size - rows);
    return start;
  }
  int32_t start = end_;
  if (!gaps_.empty()) {
    const auto last = std::prev(gaps_.end());
    if (last->first + last->second == end_) {
      start = last->first;
      remove(last);
    }
  }
  end_ = start + rows;
  return start;
}

void RowPool::give_back(int32_t start, int32_t rows) {
  auto after = gaps_.lower_bound(start);
  if (after != gaps_.end() && after->first == start + rows) {
    rows += after->second;
    after = remove(after);
  }
  if (after != gaps_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == start) {
      start = before->first;
      rows += before->second;
      remove(before);
    }
  }
  add(start, rows);
}

void RowPool::add(int32_t start, int32_t rows) {
  gaps_.emplace(start, rows);
  by_size_.emplace(rows, start);
}

RowPool::Gaps::iterator RowPool::remove(Gaps::iterator gap) {
  by_size_.erase({gap->second, gap->first});
  return gaps_.erase(gap);
}

namespace {

struct Block {
  int32_t tape_class = 0;
  int32_t start = 0, rows = 0;
  int32_t last = -1;  // the last wave that reads it
  int32_t next = -1;  // another block with the same last wave
};

class Reuse {
 public:
  Reuse(Span<const int64_t> widths, Schedule& schedule)
      : widths_(widths),
        schedule_(schedule),
        program_(schedule.program),
        values_(schedule.values),
        layout_(schedule.layout),
        waves_(static_cast<int32_t>(layout_.waves.size())),
        pools_(program_.num_classes, RowPool(layout_.pad)) {}

  void run() {
    make_blocks();
    find_last_reads();
    take_rows();
    for (int32_t c = 0; c < program_.num_classes; ++c)
      layout_.value_rows[c] = pools_[c].end() - layout_.pad;
  }

 private:
  // Those of arguments first, then those of the waves' outputs.
  void make_blocks() {
    for (int32_t c : program_.entry_function().data) blocks_.push_back({c, 0, layout_.lanes});
    block_of_.resize(values_.producers.size());
    for (const Wave& wave : layout_.waves) {
      first_.push_back(static_cast<int32_t>(blocks_.size()));
      const std::vector<int32_t>& outputs = program_.cells[wave.cell].outputs;
      for (int32_t i = 0; i < wave.count; ++i)
        for (size_t k = 0; k < outputs.size(); ++k)
          block_of_[firing(wave, i).output + k] = first_.back() + static_cast<int32_t>(k);
      for (int32_t c : outputs)
        blocks_.push_back({c, 0, static_cast<int32_t>(widths_[wave.width])});
    }
    first_.push_back(static_cast<int32_t>(blocks_.size()));
  }

  const Firing& firing(const Wave& wave, int32_t i) const {
    return values_.firings[layout_.order[wave.first + i]];
  }

  Block& block(ValueId value) {
    return blocks_[value >= 0 ? block_of_[value] : ~value / layout_.lanes];
  }

  void find_last_reads() {
    for (int32_t w = 0; w < waves_; ++w) {
      const Wave& wave = layout_.waves[w];
      for (int32_t i = 0; i < wave.count; ++i)
        for (size_t k = 0; k < program_.cells[wave.cell].inputs.size(); ++k)
          block(values_.inputs[firing(wave, i).input + k]).last = w;
    }
    // What is read from outside stays.
    const size_t results = program_.entry_function().results.size();
    for (const auto* frames : {&schedule_.frames->roots, &layout_.collected})
      for (int32_t frame : *frames)
        for (size_t k = 0; k < results; ++k)
          block(values_.results[schedule_.frames->starts[frame].result + k]).last = waves_;
  }

  // What a wave reads for the last time may be overwritten by what it makes of it.
  void take_rows() {
    ending_.assign(waves_ + 1, -1);
    const auto arguments = static_cast<int32_t>(program_.entry_function().data.size());
    for (int32_t b = 0; b < arguments; ++b) {
      take(blocks_[b]);
      layout_.root_starts[b] = blocks_[b].start;
    }
    for (int32_t b = 0; b < arguments; ++b) await(b);
    for (int32_t w = 0; w < waves_; ++w) {
      for (int32_t b = ending_[w]; b >= 0; b = blocks_[b].next) give_back(blocks_[b]);
      for (int32_t b = first_[w]; b < first_[w + 1]; ++b) take(blocks_[b]);
      write_starts(w);
      for (int32_t b = first_[w]; b < first_[w + 1]; ++b) await(b);
    }
  }

  // Gives a block back after the last wave that reads it; at once if there is none.
  void await(int32_t b) {
    Block& block = blocks_[b];
    if (block.last < 0) give_back(block);
    else block.next = std::exchange(ending_[block.last], b);
  }

  void take(Block& block) { block.start = pools_[block.tape_class].take(block.rows); }

  void give_back(const Block& block) {
    pools_[block.tape_class].give_back(block.start, block.rows);
  }

  void write_starts(int32_t w) {
    const Wave& wave = layout_.waves[w];
    for (int32_t b = first_[w]; b < first_[w + 1]; ++b) {
      const int32_t k = b - first_[w];
      layout_.out_starts[static_cast<size_t>(w) * layout_.max_out + k] = blocks_[b].start;
      for (int32_t i = 0; i < wave.count; ++i)
        layout_.output_rows[firing(wave, i).output + k] = blocks_[b].start + i;
    }
  }

  Span<const int64_t> widths_;
  Schedule& schedule_;
  const Program& program_;
  const Values& values_;
  Layout& layout_;
  const int32_t waves_;
  std::vector<RowPool> pools_;  // a class
  std::vector<Block> blocks_;
  std::vector<int32_t> first_;     // block of each wave
  std::vector<int32_t> block_of_;  // of each output
  std::vector<int32_t> ending_;    // of each wave, a block that it reads last
};

}  // namespace

Status reuse_rows(Span<const int64_t> widths, Schedule& schedule) {
  if (static_cast<int64_t>(widths.size()) != schedule.num_widths)
    return internal_error("rows are laid out for other widths than the schedule's");
  if (!schedule.is_laid_out()) return internal_error("the schedule is still to be laid out");
  Reuse(widths, schedule).run();
  return {};
}

}  // namespace jaxrec
