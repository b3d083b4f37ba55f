// Domains: a schedule divided into parts with tapes of their own.
//
// Waves on one set of tapes are a chain. So that workers, or devices, compute at the same time,
// firings are divided into domains: by the device of their cell, and by *shards*, subtrees of the
// call tree of about equal cost. A divided schedule is a schedule of a larger program: it has every
// cell and every tape class once for each domain, and one more cell for each kind of copy, which
// carries values of one class from one domain to another. Everything that works on a schedule works
// on it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan.h"

namespace jaxrec {

struct DivideOptions {
  int32_t shards = 1;               // of each device
  Span<const int32_t> cell_device;  // numbered from 0, a cell
  Span<const int64_t> widths;
  Span<const double> costs;  // of a wave of each width, cell after cell
  double copy_cost = 1.0;    // of any copy
};

/// Values of a class that one domain makes and another reads.
struct Copy {
  int32_t source, target, tape_class;
};

/// Domain `device * shards + shard`; it has cells and classes from `domain` times their number.
/// Domain 0 has the roots' arguments and results.
struct Division {
  int32_t domains = 1;
  int64_t num_widths = 0;
  std::vector<Copy> copies;  // cells after those of all domains
  Program program;
  Values values;
  Layout layout;

  /// Puts the divided schedule in the place of the whole one.
  void replace(Schedule& schedule) &&;
};

Status divide(const Schedule& schedule, const DivideOptions& options, Division& out);

/// For each frame its shard; a pure function of its arguments. `weights` are those of a firing, a
/// cell. Frames above the subtrees that are dealt out are in shard 0.
std::vector<int32_t> find_shards(const Schedule& schedule, const std::vector<double>& weights,
                                 int32_t shards);

/// The time that the waves of a layout take on so many workers: waves that use the same tapes are
/// one after the other, and never more than `workers` at a time.
struct Timing {
  int32_t cells = 0;         // of a domain
  Span<const double> costs;  // of a wave of each width, cell after cell
  double copy_cost = 1.0;
  int32_t workers = 1;
};
double estimate(const Layout& layout, int32_t domains, const std::vector<Copy>& copies,
                size_t num_widths, const Timing& timing);

}  // namespace jaxrec
