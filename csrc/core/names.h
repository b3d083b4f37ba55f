// The user's names, and the texts made of them: call paths and errors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/machine.h"
#include "core/program.h"
#include "core/status.h"

namespace jaxrec {

constexpr size_t kPathHead = 3;  // calls shown at a long path's start
constexpr size_t kPathTail = 1;  // and at its end

/// Names of a program, from one text: a line per function, then a line per function with its
/// control arguments' names between spaces, then a line per outer array. What is missing gets a
/// number.
class Names {
 public:
  Names(const Program& program, std::string_view text);

  /// What an argument is called that no text shows.
  static constexpr std::string_view kNotShown = "-";

  const std::string& function(int32_t i) const { return functions_[i]; }
  const std::string& arg(int32_t function, size_t i) const { return args_[function][i]; }
  const std::string& outer(int32_t i) const { return outers_[i]; }

 private:
  std::vector<std::string> functions_;
  std::vector<std::vector<std::string>> args_;
  std::vector<std::string> outers_;
};

/// One call of a path: what was called, and from which call site of its caller (-1: a root).
struct PathStep {
  int32_t function;
  int32_t site;
};

/// `f -> f[1] -> g[0]`: each call with the label of its call site. Long paths lose their middle.
std::string format_path(const Names& names, const std::vector<PathStep>& steps,
                        size_t shown = kPathHead + kPathTail + 1);

/// `12,345`
std::string format_count(int64_t n);

/// The texts of a run's faults. `path` leads to the frame at fault.
Status index_error(const Names& names, const std::vector<PathStep>& path, const IndexFault& fault,
                   const Outer& outer);
Status call_limit_error(const Program& program, const Names& names,
                        const std::vector<PathStep>& path, const Call& last, int64_t call_limit);
Status depth_limit_error(const Program& program, const Names& names,
                         const std::vector<PathStep>& path, const Call& last, int64_t depth_limit);
Status itself_error(const Program& program, const Names& names, const std::vector<PathStep>& path,
                    const Call& last);

}  // namespace jaxrec
