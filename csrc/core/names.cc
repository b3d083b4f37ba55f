#include "core/names.h"

#include <sstream>

namespace jaxrec {
namespace {

std::string next_line(std::string_view& text) {
  const size_t end = text.find('\n');
  std::string line(text.substr(0, end));
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return line;
}

std::string or_numbered(std::string name, const char* prefix, size_t i) {
  return name.empty() ? prefix + std::to_string(i) : name;
}

std::string format_step(const Names& names, const PathStep& step) {
  const std::string& name = names.function(step.function);
  return step.site < 0 ? name : name + "[" + std::to_string(step.site) + "]";
}

std::string format_value(DType dtype, Word word) {
  return with_type(dtype, [word](auto tag) -> std::string {
    using T = typename decltype(tag)::type;
    const T value = from_word<T>(word);
    if constexpr (std::is_same_v<T, bool>) return value ? "True" : "False";
    else if constexpr (std::is_floating_point_v<T>) return (std::ostringstream() << value).str();
    else return std::to_string(value);
  });
}

// ` with arguments (i=3, depth=0)`
std::string format_args(const Program& program, const Names& names, const Call& call) {
  const std::vector<DType>& types = program.functions[call.callee].control;
  std::string out;
  for (size_t i = 0; i < types.size(); ++i) {
    const std::string& name = names.arg(call.callee, i);
    if (name == Names::kNotShown) continue;
    out += (out.empty() ? " with arguments (" : ", ") + name + "=" +
           format_value(types[i], call.control()[i]);
  }
  return out.empty() ? out : out + ")";
}

std::string format_list(Span<const int64_t> items) {
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) out += (i ? ", " : "") + std::to_string(items[i]);
  return out;
}

std::string limit_text(const Program& program, const Names& names,
                       const std::vector<PathStep>& path, const Call& last,
                       const std::string& what) {
  return "RecursionLimitError: " + names.function(program.entry) + " " + what +
         "; a base case is missing or its condition is never met (a cycle in the indices?). Call "
         "path: " +
         format_path(names, path) + format_args(program, names, last) +
         ". If it ends, declare at least as many calls as it makes: rec_fn(max_calls=...).";
}

// An index as it is written: to one that counts from the end the size of the axis was added.
std::vector<int64_t> as_written(const IndexFault& fault, const Outer& outer) {
  std::vector<int64_t> index(fault.index.begin(), fault.index.end());
  for (size_t axis = 0; axis < index.size(); ++axis)
    if (index[axis] < 0) index[axis] -= outer.dims[axis];
  return index;
}

// What may be wrong with an index: -1, as of a leaf that has no children, in an unsigned type. One
// that is the size of the axis is off by one.
std::string if_unsigned(int64_t index, int64_t size) {
  for (int64_t wrapped : {int64_t{0xff}, int64_t{0xffff}, int64_t{0xffffffff}})
    if (index == wrapped && index != size)
      return ": -1 is " + std::to_string(index) + " where the type is unsigned";
  return "";
}

}  // namespace

Names::Names(const Program& program, std::string_view text) {
  for (size_t i = 0; i < program.functions.size(); ++i)
    functions_.push_back(or_numbered(next_line(text), "function", i));
  for (const Function& function : program.functions) {
    std::istringstream line(next_line(text));
    std::vector<std::string>& args = args_.emplace_back();
    for (size_t i = 0; i < function.control.size(); ++i) {
      std::string name;
      line >> name;
      args.push_back(or_numbered(name, "arg", i));
    }
  }
  for (size_t i = 0; i < program.outers.size(); ++i)
    outers_.push_back(or_numbered(next_line(text), "array", i));
}

std::string format_path(const Names& names, const std::vector<PathStep>& steps, size_t shown) {
  const bool whole = steps.size() <= shown;
  std::string out;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (i) out += " -> ";
    if (!whole && i == kPathHead) {
      out += "... (" + format_count(static_cast<int64_t>(steps.size() - kPathHead - kPathTail)) +
             " more) ...";
      i = steps.size() - kPathTail - 1;
    } else {
      out += format_step(names, steps[i]);
    }
  }
  return out;
}

std::string format_count(int64_t n) {
  std::string out = std::to_string(n);
  for (int64_t at = static_cast<int64_t>(out.size()) - 3; at > 0; at -= 3) out.insert(at, ",");
  return out;
}

Status index_error(const Names& names, const std::vector<PathStep>& path, const IndexFault& fault,
                   const Outer& outer) {
  const std::string& full = names.outer(fault.outer);
  const std::string name = full.substr(full.rfind('.') + 1);  // npos + 1 is 0: all of it
  const std::vector<int64_t> written = as_written(fault, outer);
  const std::string shape = outer.dims.size() == 1
                                ? "an array of " + std::to_string(outer.dims[0]) + " elements"
                                : "an array of shape (" + format_list(outer.dims) + ")";
  return {Code::kIndex,
          "JaxRecError: " + names.function(fault.call->callee) + " read " + name + "[" +
              format_list(written) + "], which is out of range for " + shape + " (axis " +
              std::to_string(fault.axis) + "). Call path: " + format_path(names, path) +
              ". Check where the index into " + full + " comes from" +
              if_unsigned(written[fault.axis], outer.dims[fault.axis]) + ".",
          0};
}

Status call_limit_error(const Program& program, const Names& names,
                        const std::vector<PathStep>& path, const Call& last, int64_t call_limit) {
  const std::string what = "made more than " + std::to_string(call_limit) + " calls without ending";
  return {Code::kRecursionLimit, limit_text(program, names, path, last, what), 0};
}

Status itself_error(const Program& program, const Names& names, const std::vector<PathStep>& path,
                    const Call& last) {
  return {Code::kRecursionLimit,
          "RecursionLimitError: " + names.function(last.callee) +
              " calls itself with equal arguments before it returns, so it would wait for its own "
              "result: it is shared (memo=True), and a call that is made again is the same call. "
              "Call path: " +
              format_path(names, path) + format_args(program, names, last) +
              ". Let every path of calls change the arguments (a cycle in the indices?).",
          0};
}

Status depth_limit_error(const Program& program, const Names& names,
                         const std::vector<PathStep>& path, const Call& last, int64_t depth_limit) {
  const std::string what = "nested more than " + std::to_string(depth_limit) + " calls deep";
  return {Code::kRecursionLimit, limit_text(program, names, path, last, what), 0};
}

}  // namespace jaxrec
