// The extension module `jaxrec._core`.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/fill.h"
#include "core/most_readers.h"
#include "core/opcode.h"
#include "core/plan.h"
#include "core/processors.h"
#include "core/reuse.h"
#include "core/stepper.h"
#include "ffi/handlers.h"
#include "ffi/plans.h"
#include "ffi/sessions.h"
#include "python/arrays.h"
#include "python/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace jaxrec {
namespace {

Request to_request(const Ints& program, const std::vector<NumpyIn>& roots,
                   const std::vector<NumpyIn>& outers, const Ints& outer_lanes, int64_t lanes,
                   const std::vector<int64_t>& widths, const std::vector<double>& costs,
                   const std::string& names) {
  Request request;
  request.program = {program.data(), program.size()};
  request.roots = views(roots);
  request.outers = views(outers);
  request.outer_lanes = {outer_lanes.data(), outer_lanes.size()};
  request.lanes = lanes;
  request.widths = widths;
  request.costs = costs;
  request.names = names;
  return request;
}

std::unique_ptr<Schedule> plan_numpy(Ints program, const std::vector<NumpyIn>& roots,
                                     const std::vector<NumpyIn>& outers, Ints outer_lanes,
                                     int64_t lanes, const std::vector<int64_t>& widths,
                                     const std::vector<double>& costs, const std::string& names,
                                     int64_t max_calls, int64_t call_limit, bool collect,
                                     int64_t workers, int64_t depth_limit, bool waves,
                                     bool sweeps) {
  Request request = to_request(program, roots, outers, outer_lanes, lanes, widths, costs, names);
  request.max_calls = max_calls;
  request.call_limit = call_limit;
  request.depth_limit = depth_limit;
  request.collect = collect;
  request.workers = workers;
  request.waves = waves;
  request.sweeps = sweeps;
  auto schedule = std::make_unique<Schedule>();
  raise_if_failed(released([&] { return plan(request, *schedule); }));
  return schedule;
}

std::unique_ptr<Stepper> start_stepper(Ints program, const std::vector<NumpyIn>& roots,
                                       const std::vector<NumpyIn>& outers, Ints outer_lanes,
                                       int64_t lanes, const std::vector<int64_t>& widths,
                                       const std::vector<double>& costs, const std::string& names,
                                       int64_t max_calls, int64_t call_limit, bool collect,
                                       int64_t depth_limit, bool reuse) {
  Request request = to_request(program, roots, outers, outer_lanes, lanes, widths, costs, names);
  request.max_calls = max_calls;
  request.call_limit = call_limit;
  request.depth_limit = depth_limit;
  request.collect = collect;
  std::unique_ptr<Stepper> stepper;
  raise_if_failed(released([&] { return Stepper::start(request, {{}, {}, reuse}, stepper); }));
  return stepper;
}

auto step_numpy(Stepper& stepper, const std::vector<NumpyIn>& tapes) {
  const std::vector<Array> given = views(tapes);
  raise_if_failed(released([&] { return stepper.step(given); }));
  std::vector<int32_t> row(kWaveHead + stepper.program().max_outputs());
  raise_if_failed(stepper.write_wave(0, {row.data(), row.size()}));
  return to_numpy(std::move(row));
}

void step_operands_numpy(const Stepper& stepper, const std::vector<NumpyOut>& buffers) {
  raise_if_failed(stepper.write_operands(0, views(buffers)));
}

std::unique_ptr<Schedule> finish_stepper(Stepper& stepper) {
  auto schedule = std::make_unique<Schedule>();
  raise_if_failed(released([&] { return stepper.finish(*schedule); }));
  return schedule;
}

void fill_numpy(const Schedule& schedule, const std::vector<NumpyOut>& buffers,
                const std::vector<int64_t>& capacity, bool readers) {
  const std::vector<Array> out = views(buffers);
  raise_if_failed(released([&] { return fill(schedule, out, {capacity, readers}); }));
}

void lay_out_python(Schedule& schedule, const std::vector<int64_t>& widths,
                    const std::vector<double>& costs, bool sweeps) {
  raise_if_failed(released([&] { return lay_out({widths, costs, sweeps}, schedule); }));
}

void reuse_rows_python(Schedule& schedule, const std::vector<int64_t>& widths) {
  const Status status = released([&] { return reuse_rows(widths, schedule); });
  if (!status.ok()) throw nb::value_error(status.text.c_str());
}

auto waves(const Schedule& schedule) {
  const Layout& layout = schedule.layout;
  const size_t columns = kWaveHead + layout.max_out + layout.max_in;
  std::vector<int32_t> out(layout.waves.size() * columns);
  for (size_t i = 0; i < layout.waves.size(); ++i)
    write_wave(schedule, i, out.data() + i * columns);
  return to_numpy(std::move(out), {layout.waves.size(), columns});
}

template <class Of>
auto per_frame(const Schedule& schedule, Of of) {
  std::vector<int32_t> out(schedule.frames->size());
  for (int32_t i = 0; i < schedule.frames->size(); ++i) out[i] = of(*schedule.frames, i);
  return to_numpy(std::move(out));
}

auto cell_frames(const Schedule& schedule, int64_t cell) {
  if (cell < 0 || cell >= static_cast<int64_t>(schedule.program.cells.size()))
    throw nb::index_error(("there is no cell " + std::to_string(cell)).c_str());
  std::vector<int32_t> out;
  for (const Wave& wave : schedule.layout.waves)
    for (int32_t i = 0; wave.cell == cell && i < wave.count; ++i)
      out.push_back(schedule.values.firings[schedule.layout.order[wave.first + i]].frame);
  return to_numpy(std::move(out));
}

std::string call_path(const Schedule& schedule, int64_t frame) {
  if (frame < 0 || frame >= schedule.frames->size())
    throw nb::index_error(("there is no frame " + std::to_string(frame)).c_str());
  return schedule.call_path(frame);
}

int32_t wave_frame(const Schedule& schedule, int64_t wave, int64_t row) {
  const std::vector<Wave>& waves = schedule.layout.waves;
  if (wave < 0 || wave >= static_cast<int64_t>(waves.size()) || row < 0 || row >= waves[wave].count)
    throw nb::index_error("there is no such row of a wave");
  return schedule.values.firings[schedule.layout.order[waves[wave].first + row]].frame;
}

// New arrays carry their memory with them.
constexpr auto kOwned = nb::rv_policy::automatic;

void bind_schedule(nb::module_& m) {
  nb::class_<Schedule>(m, "Schedule", "A finished schedule. Arrays are copies.")
      .def_prop_ro("num_calls", [](const Schedule& s) { return s.frames->size(); })
      .def_prop_ro("depth", [](const Schedule& s) { return s.expansion.depth; })
      .def_prop_ro("num_waves", [](const Schedule& s) { return s.layout.waves.size(); })
      .def_prop_ro("num_collected", [](const Schedule& s) { return s.layout.collected.size(); })
      .def_prop_ro("info_size", &info_size)
      .def_prop_ro("waves", &waves, kOwned)
      .def_prop_ro("value_rows", [](const Schedule& s) { return s.layout.value_rows; })
      .def_prop_ro("read_rows", [](const Schedule& s) { return s.layout.read_rows; })
      .def_prop_ro("cell_rows", [](const Schedule& s) { return s.layout.cell_rows; })
      .def_prop_ro(
          "frame_function",
          [](const Schedule& s) {
            return per_frame(s,
                             [](const FrameTable& f, int32_t i) { return f.outline(i).function; });
          },
          kOwned)
      .def_prop_ro(
          "frame_parent",
          [](const Schedule& s) {
            return per_frame(s, [](const FrameTable& f, int32_t i) { return f.parents[i]; });
          },
          kOwned)
      .def_prop_ro(
          "frame_site",
          [](const Schedule& s) {
            return per_frame(s, [](const FrameTable& f, int32_t i) { return f.site(i); });
          },
          kOwned)
      .def_prop_ro(
          "frame_lane",
          [](const Schedule& s) {
            return per_frame(s, [](const FrameTable& f, int32_t i) { return f.calls[i]->lane; });
          },
          kOwned)
      .def("cell_frames", &cell_frames, "cell"_a, "The frame of each firing of a cell, by row.")
      .def("wave_frame", &wave_frame, "wave"_a, "row"_a, "The frame of a row of a wave.")
      .def("call_path", &call_path, "frame"_a, "The calls that led to a frame, as text.")
      .def("fill", &fill_numpy, "buffers"_a, "capacity"_a = std::vector<int64_t>(),
           "readers"_a = true, "Writes the schedule into the buffers of a compiled program.")
      .def("lay_out", &lay_out_python, "widths"_a, "costs"_a, "sweeps"_a = false,
           "Divides its firings into waves, in the place of those that it has.")
      .def("reuse_rows", &reuse_rows_python, "widths"_a,
           "Hands value rows out again once all that reads them has run.");
}

void bind_stepper(nb::module_& m) {
  nb::class_<Stepper>(m, "Stepper",
                      "The scheduler of a program whose control reads what cells compute.")
      .def("step", &step_numpy, "tapes"_a, kOwned,
           "Goes on after the last wave, with a tape for each import; the next wave's row.")
      .def("operands", &step_operands_numpy, "buffers"_a,
           "Writes the wave's read rows, exports and lanes.")
      .def_prop_ro("reads_next", &Stepper::reads_next,
                   "Whether the next step reads what the waves up to this one write.")
      .def("call_path", &Stepper::call_path, "wave"_a, "row"_a,
           "The calls that led to a row of a wave, as text; empty if it is not there.")
      .def("finish", &finish_stepper, "The schedule that ran; the stepper is then of no use.");
}

// As lists of lists: of the outputs of each cell, then of the data arguments of the roots.
std::vector<std::vector<int32_t>> most_readers_numpy(Ints words, bool collect) {
  Program program;
  raise_if_failed(decode({words.data(), words.size()}, program));
  MostReaders most = most_readers(program, collect);
  most.outputs.push_back(std::move(most.roots));
  return most.outputs;
}

// Python's exception type, made with the module and kept by it.
void bind_error(nb::module_& m) {
  nb::object type = nb::steal(PyErr_NewExceptionWithDoc(
      "jaxrec._core.PlanError", "A schedule that cannot be made: arguments (code, text, needed).",
      nullptr, nullptr));
  m.attr("PlanError") = type;
  nb::register_exception_translator(
      [](const std::exception_ptr& raised, void* error_type) {
        try {
          std::rethrow_exception(raised);
        } catch (const PlanError& error) {
          const Status& status = error.status;
          nb::tuple args = nb::make_tuple(code_name(status.code), status.text, status.needed);
          PyErr_SetObject(static_cast<PyObject*>(error_type), args.ptr());
        }
      },
      type.ptr());
}

nb::capsule handler(XLA_FFI_Handler* function) {
  return nb::capsule(reinterpret_cast<void*>(function));
}

nb::dict stages(XLA_FFI_Handler* instantiate, XLA_FFI_Handler* execute) {
  nb::dict out;
  out["instantiate"] = handler(instantiate);
  out["execute"] = handler(execute);
  return out;
}

nb::dict cpu_handlers() {
  nb::dict out;
  out["jaxrec_plan"] = stages(&jaxrec_plan_instantiate, &jaxrec_plan);
  out["jaxrec_step_begin"] = stages(&jaxrec_step_instantiate, &jaxrec_step_begin);
  out["jaxrec_step"] = handler(&jaxrec_step);
  out["jaxrec_step_operands"] = handler(&jaxrec_step_operands);
  out["jaxrec_step_results"] = handler(&jaxrec_step_results);
  out["jaxrec_step_end"] = handler(&jaxrec_step_end);
  out["jaxrec_native"] = handler(&jaxrec_native);
  out["jaxrec_allocate"] = handler(&jaxrec_allocate);
  out["jaxrec_read"] = handler(&jaxrec_read);
  out["jaxrec_gather_rows"] = handler(&jaxrec_gather_rows);
  out["jaxrec_sum_rows"] = handler(&jaxrec_sum_rows);
  out["jaxrec_random"] = handler(&jaxrec_random);
  return out;
}

nb::dict cuda_handlers() {
  nb::dict out;
  out["jaxrec_plan"] = stages(&jaxrec_plan_instantiate_cuda, &jaxrec_plan_cuda);
  out["jaxrec_step_begin"] = stages(&jaxrec_step_instantiate_cuda, &jaxrec_step_begin_cuda);
  out["jaxrec_step"] = handler(&jaxrec_step_cuda);
  out["jaxrec_step_operands"] = handler(&jaxrec_step_operands_cuda);
  out["jaxrec_step_results"] = handler(&jaxrec_step_results_cuda);
  out["jaxrec_step_end"] = handler(&jaxrec_step_end_cuda);
  out["jaxrec_native"] = handler(&jaxrec_native_cuda);
  return out;
}

// As jax.ffi.register_ffi_target takes them: a handler, or handlers by stage where there is a
// state.
nb::dict ffi_handlers() {
  nb::dict out;
  out["cpu"] = cpu_handlers();
  out["cuda"] = cuda_handlers();
  return out;
}

template <class T>
nb::dict type_of_state() {
  nb::dict out;
  out["type_id"] = nb::capsule(&T::id);
  out["type_info"] = nb::capsule(&T::info);
  return out;
}

// As jax.ffi.register_ffi_type takes them.
nb::dict ffi_types() {
  nb::dict out, cpu, cuda;
  cpu["jaxrec_plans"] = type_of_state<Plans>();
  cpu["jaxrec_sessions"] = type_of_state<Sessions>();
  cuda["jaxrec_cuda_plans"] = type_of_state<CudaPlans>();
  cuda["jaxrec_cuda_sessions"] = type_of_state<CudaSessions>();
  out["cpu"] = cpu;
  out["cuda"] = cuda;
  return out;
}

nb::dict opcodes() {
  nb::dict out;
  for (int i = 0; i < kNumOps; ++i) out[kOpNames[i]] = i;
  return out;
}

nb::dict dtypes() {
  nb::dict out;
  for (int i = 0; i < kNumDTypes; ++i) out[dtype_name(static_cast<DType>(i))] = i;
  return out;
}

}  // namespace
}  // namespace jaxrec

NB_MODULE(_core, m) {
  using namespace jaxrec;
  m.doc() = "The C++ scheduler of jaxrec.";
  // What JAX's caches hold at the end of the process is never freed.
  nb::set_leak_warnings(false);
  m.attr("MAGIC") = kMagic;
  m.attr("VERSION") = kVersion;
  m.attr("MOST_WORKERS") = kMostWorkers;
  m.def("opcodes", &opcodes, "Instruction numbers by name.");
  m.def("dtypes", &dtypes, "Element type codes by NumPy name.");
  m.def("ffi_handlers", &ffi_handlers, "XLA FFI handlers by platform and target name.");
  m.def("ffi_types", &ffi_types, "The types of their states by platform and name.");
  m.attr("MANY_READERS") = MostReaders::kMany;
  m.def("most_readers", &most_readers_numpy, "program"_a, "collect"_a,
        "The most readers of a value: of each output of each cell, then of each data argument of "
        "the roots; MANY_READERS if there is no small bound.");
  bind_error(m);
  bind_schedule(m);
  bind_stepper(m);
  m.def(
      "start_stepper", &start_stepper, "program"_a, "roots"_a, "outers"_a, "outer_lanes"_a,
      "lanes"_a, "widths"_a, "costs"_a, "names"_a, "max_calls"_a = -1, "call_limit"_a = -1,
      "collect"_a = false, "depth_limit"_a = -1, "reuse"_a = false,
      "Starts a stepped program; reuse: rows that nothing can read any more are handed out again. "
      "Raises PlanError(code, text, needed).");
  bind_runtime(m);
  bind_native(m);
  bind_division(m);
  m.def(
      "plan", &plan_numpy, "program"_a, "roots"_a, "outers"_a, "outer_lanes"_a, "lanes"_a,
      "widths"_a, "costs"_a, "names"_a, "max_calls"_a = -1, "call_limit"_a = -1,
      "collect"_a = false, "workers"_a = 0, "depth_limit"_a = -1, "waves"_a = true,
      "sweeps"_a = false,
      "Plans a program; waves: else it is still to be laid out; sweeps: they are one of each cell. "
      "Raises PlanError(code, text, needed).");
}
