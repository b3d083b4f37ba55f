// Planning a recursive program: its calls, their firings, and the waves that run them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/frames.h"
#include "core/layout.h"
#include "core/names.h"
#include "core/program.h"

namespace jaxrec {

/// Everything a schedule is a function of. The memory stays the caller's and is read only in
/// `plan`.
struct Request {
  Span<const int64_t> program;
  std::vector<Array> roots;  // [lanes] each: the entry function's control arguments
  std::vector<Array> outers;
  Span<const int64_t> outer_lanes;  // (stride, size) an outer; size -1: not batched
  int64_t lanes = 0;
  Span<const int64_t> widths;
  Span<const double> costs;  // as `make_agenda` takes them
  bool sweeps = false;       // likewise
  std::string_view names;
  int64_t max_calls = -1;    // what the buffers are made for; below 0: no bound
  int64_t call_limit = -1;   // below 0: no bound
  int64_t depth_limit = -1;  // likewise
  bool collect = false;
  bool waves = true;  // else the schedule is still to be laid out
  int64_t workers = 0;

  WaveOptions of_waves() const { return {widths, costs, sweeps}; }
};

/// A finished schedule.
struct Schedule {
  Program program;
  std::string names;
  bool collect = false;
  int64_t num_widths = 0;
  Expansion expansion;  // keeps the calls alive
  std::unique_ptr<FrameTable> frames;
  Values values;
  Layout layout;

  /// Whether its firings are divided into waves.
  bool is_laid_out() const { return layout.order.size() == values.firings.size(); }

  /// `f -> f[1] -> g[0]`; an empty text for a frame that is not there.
  std::string call_path(int64_t frame) const;
};

/// Decodes the program and binds the arrays of a request, which must fit it.
Status bind_request(const Request& request, Program& program, std::vector<Outer>& outers);

/// Plans a program that imports nothing. On failure `out` must not be used.
Status plan(const Request& request, Schedule& out);

/// Divides the firings of a schedule into waves, in the place of those that it has.
Status lay_out(const WaveOptions& options, Schedule& schedule);

}  // namespace jaxrec
