// Outlines: what a frame does with data, once per path through a function's code.
//
// Which cells a frame fires, which calls it makes and where each of their inputs comes from depends
// on the branches it takes and on nothing else (every instruction runs at most once). Frames that
// take the same branches share one outline; a frame then costs two words plus its control values.
#pragma once

#include <cstdint>
#include <vector>

#include "core/program.h"

namespace jaxrec {

/// Where a frame finds a value: result `index` of its call `source` (from 0, in program order), or
/// kOwnOutput: output `index` of the frame, all its firings' outputs in a row, or kOwnArg:
/// argument.
struct Ref {
  static constexpr int32_t kOwnOutput = -1;
  static constexpr int32_t kOwnArg = -2;
  int32_t source;
  int32_t index;
};

/// References stand in OutlineTable::refs. The counts repeat the program's, to be near at hand.
struct OutlineCall {
  int32_t callee;
  int32_t site;
  int32_t args, num_args;
};

struct OutlineFiring {
  int32_t cell;
  int32_t inputs, num_inputs;
  int32_t num_outputs;
};

struct Outline {
  int32_t function = 0;
  int32_t calls = 0, num_calls = 0;         // in OutlineTable::calls
  int32_t firings = 0, num_firings = 0;     // in OutlineTable::firings
  int32_t events = 0;                       // in OutlineTable::events, one per call and firing
  int32_t results = 0, num_results = 0;     // in OutlineTable::refs
  int32_t num_inputs = 0, num_outputs = 0;  // of all its firings

  int32_t num_events() const { return num_calls + num_firings; }
};

/// The outlines met so far, found by the branches taken. Each worker has its own.
struct OutlineTable {
  std::vector<Outline> outlines;
  std::vector<OutlineCall> calls;
  std::vector<OutlineFiring> firings;
  std::vector<int32_t> events;  // program order: firing i as i, call i as ~i
  std::vector<Ref> refs;

  /// A trie over branches: a function's root link is link number `function`; a link leads to the
  /// outline (after a RETURN) or to the first of a SWITCH's links. kNone: never taken.
  static constexpr int32_t kNone = -1;
  std::vector<int32_t> links;

  explicit OutlineTable(const Program& program) : links(program.functions.size(), kNone) {
    outlines.reserve(16);
  }

  /// The link for branch `branch` of the SWITCH, of `num_branches`, that `link` leads to.
  int32_t follow(int32_t link, int32_t num_branches, int32_t branch) {
    if (links[link] == kNone) {
      links[link] = static_cast<int32_t>(links.size());
      links.insert(links.end(), num_branches, kNone);
    }
    return links[link] + branch;
  }

  /// Adds the outlines of another table (its trie is not needed any more); returns the shift of
  /// their numbers.
  int32_t append(const OutlineTable& other);
};

/// Builds the outline of `function` along the given branches of its SWITCHes, in order, and returns
/// its number.
int32_t build_outline(const Program& program, int32_t function,
                      const std::vector<int32_t>& branches, OutlineTable& table);

}  // namespace jaxrec
