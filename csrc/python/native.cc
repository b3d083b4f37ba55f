// Functions of scalars: a native program that is decoded once and called many times.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/arith.h"
#include "core/denormals.h"
#include "core/native_opcodes.h"
#include "core/native_run.h"
#include "python/arrays.h"
#include "python/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace jaxrec {
namespace {

/// Arguments of the roots as they are given: arrays, or numbers of Python where there is one lane.
class Roots {
 public:
  Roots(const nb::list& given, const std::vector<native::Port>& ports) : words_(given.size()) {
    for (size_t i = 0; i < given.size(); ++i) {
      const nb::handle value = given[i];
      if (PyLong_Check(value.ptr()) || PyFloat_Check(value.ptr())) {
        const DType dtype = i < ports.size() ? ports[i].dtype : DType::kI64;
        with_type(dtype, [&](auto tag) { put<typename decltype(tag)::type>(value, &words_[i]); });
        views_.push_back({&words_[i], dtype, {}});
      } else {
        arrays_.push_back(nb::cast<NumpyIn>(value));
        views_.push_back(view(arrays_.back()));
      }
    }
  }

  const std::vector<Array>& views() const { return views_; }

 private:
  template <class T>
  static void put(nb::handle number, int64_t* word) {
    T value{};
    if constexpr (std::is_same_v<T, bool>) {
      value = PyObject_IsTrue(number.ptr()) != 0;
    } else if constexpr (std::is_floating_point_v<T>) {
      value = static_cast<T>(PyFloat_AsDouble(number.ptr()));
    } else if constexpr (std::is_signed_v<T>) {
      value = narrowed<T>(PyLong_AsLongLong(number.ptr()));
    } else {
      value = narrowed<T>(PyLong_AsUnsignedLongLong(number.ptr()));
    }
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    std::memcpy(word, &value, sizeof(value));
  }

  template <class T, class Wide>
  static T narrowed(Wide wide) {
    if (static_cast<Wide>(static_cast<T>(wide)) != wide && PyErr_Occurred() == nullptr)
      PyErr_SetString(PyExc_OverflowError, "a number does not fit its type");
    return static_cast<T>(wide);
  }

  std::vector<int64_t> words_;
  std::vector<NumpyIn> arrays_;  // what the views are of
  std::vector<Array> views_;
};

class NativeFunction {
 public:
  NativeFunction(Ints program, std::string names, Ints outer_lanes, int64_t lanes,
                 int64_t max_calls, int64_t rows, int64_t depth_limit, int64_t call_limit,
                 int64_t workers)
      : names_(std::move(names)),
        outer_lanes_(outer_lanes.data(), outer_lanes.data() + outer_lanes.size()) {
    raise_if_failed(native::decode({program.data(), program.size()}, program_));
    settings_.names = names_;
    settings_.outer_lanes = outer_lanes_;
    settings_.lanes = lanes;
    settings_.max_calls = max_calls;
    settings_.rows = rows;
    settings_.depth_limit = depth_limit;
    settings_.call_limit = call_limit;
    settings_.workers = workers;
  }
  NativeFunction(const NativeFunction&) = delete;  // the settings refer to other members
  NativeFunction& operator=(const NativeFunction&) = delete;

  void run(const nb::list& given, const std::vector<NumpyIn>& outers,
           const std::vector<NumpyOut>& results) const {
    const Roots roots(given, program_.roots);
    native::Request request = settings_;
    request.roots = roots.views();
    request.outers = views(outers);
    request.results = views(results);
    request.give_up = [] {
      const nb::gil_scoped_acquire acquire;
      return PyErr_CheckSignals() != 0;
    };
    Status status = released([&] { return native::run(program_, request); });
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    raise_if_failed(std::move(status));
  }

 private:
  native::Program program_;
  const std::string names_;
  const std::vector<int64_t> outer_lanes_;
  native::Request settings_;  // less the arrays
};

nb::dict native_forms() {
  nb::dict out;
  for (int i = 0; i < native::kNumForms; ++i) out[native::kFormNames[i]] = i;
  return out;
}

// What an operation makes of words that are known, as the machine computes it.
Word evaluate(int32_t op, int32_t dtype, Word a, std::optional<Word> b) {
  const FlushDenormals flush;
  if (op < 0 || op >= kNumOps || dtype < 0 || dtype >= kNumDTypes)
    throw std::invalid_argument("no such operation or type");
  const UnaryFn unary = unary_op(static_cast<Op>(op), static_cast<DType>(dtype));
  const BinaryFn binary = binary_op(static_cast<Op>(op), static_cast<DType>(dtype));
  if (b.has_value() ? binary == nullptr : unary == nullptr)
    throw std::invalid_argument("the operation does not take the type");
  return b.has_value() ? binary(a, *b) : unary(a);
}

Word convert(int32_t to, int32_t from, Word a) {
  const FlushDenormals flush;
  if (std::min(to, from) < 0 || std::max(to, from) >= kNumDTypes)
    throw std::invalid_argument("no such type");
  return convert_op(static_cast<DType>(to), static_cast<DType>(from))(a);
}

nb::dict native_instructions() {
  nb::dict out;
  const auto add = [&](DType dtype, const char* op) {
    nb::object known = out.attr("setdefault")(dtype_name(dtype), nb::list());
    known.attr("append")(op);
  };
#define JAXREC_ADD(op, f, d, t) add(DType::d, #op);
  JAXREC_HOT_ARITHMETIC(JAXREC_ADD);
  JAXREC_HOT_COMPARE(JAXREC_ADD);
#undef JAXREC_ADD
  return out;
}

}  // namespace

void bind_native(nb::module_& m) {
  m.attr("NATIVE_MAGIC") = native::kMagic;
  m.attr("NATIVE_VERSION") = native::kVersion;
  m.def("native_forms", &native_forms, "Numbers of the forms of native instructions by name.");
  m.def("evaluate", &evaluate, "op"_a, "dtype"_a, "a"_a, "b"_a = nb::none(),
        "What an operation makes of known words, by its opcode. Raises ValueError.");
  m.def("convert", &convert, "to"_a, "source"_a, "a"_a,
        "A known word of one type as one of another. Raises ValueError.");
  m.def("native_instructions", &native_instructions,
        "Names of the operations that have instructions of their own, by the type of elements.");
  nb::class_<NativeFunction>(m, "NativeFunction",
                             "A native program with what holds for all its calls. Raises "
                             "PlanError(code, text, needed).")
      .def(
          nb::init<Ints, std::string, Ints, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>(),
          "program"_a, "names"_a, "outer_lanes"_a, "lanes"_a, "max_calls"_a = -1, "rows"_a = 1,
          "depth_limit"_a = -1, "call_limit"_a = -1, "workers"_a = 0)
      .def("run", &NativeFunction::run, "roots"_a, "outers"_a, "results"_a,
           "Runs the lanes and writes their results. For one lane roots may be numbers of Python. "
           "Raises PlanError(code, text, needed), OverflowError.");
}

}  // namespace jaxrec
