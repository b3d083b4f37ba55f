// Divided schedules.
#include <nanobind/nanobind.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <utility>
#include <vector>

#include "core/divide.h"
#include "python/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace jaxrec {
namespace {

std::unique_ptr<Division> divide_python(const Schedule& schedule, int32_t shards,
                                        const std::vector<int32_t>& cell_device,
                                        const std::vector<int64_t>& widths,
                                        const std::vector<double>& costs, double copy_cost) {
  auto division = std::make_unique<Division>();
  DivideOptions options;
  options.shards = shards;
  options.cell_device = cell_device;
  options.widths = widths;
  options.costs = costs;
  options.copy_cost = copy_cost;
  const Status status = released([&] { return divide(schedule, options, *division); });
  if (!status.ok()) throw nb::value_error(status.text.c_str());
  return division;
}

double estimate_python(const Division& division, const Schedule& schedule,
                       const std::vector<double>& costs, double copy_cost, int32_t workers) {
  const int32_t cells = static_cast<int32_t>(schedule.program.cells.size());
  const size_t widths = static_cast<size_t>(division.num_widths);
  if (workers < 1 || costs.size() != cells * widths)
    throw nb::value_error("an estimate needs workers and the costs of all cells");
  return estimate(division.layout, division.domains, division.copies, widths,
                  {cells, costs, copy_cost, workers});
}

double estimate_whole(const Schedule& schedule, const std::vector<double>& costs) {
  const int32_t cells = static_cast<int32_t>(schedule.program.cells.size());
  const size_t widths = static_cast<size_t>(schedule.num_widths);
  if (costs.size() != cells * widths) throw nb::value_error("an estimate needs all costs");
  return estimate(schedule.layout, 1, {}, widths, {cells, costs, 0.0, 1});
}

nb::list copies(const Division& division) {
  nb::list out;
  for (const Copy& copy : division.copies)
    out.append(nb::make_tuple(copy.source, copy.target, copy.tape_class));
  return out;
}

}  // namespace

void bind_division(nb::module_& m) {
  nb::class_<Division>(m, "Division", "A schedule divided into domains.")
      .def_ro("domains", &Division::domains)
      .def_prop_ro("copies", &copies, "(source, target, tape class) of each copy.")
      .def("estimate", &estimate_python, "schedule"_a, "costs"_a, "copy_cost"_a, "workers"_a,
           "The time that its waves take, by the costs of each cell at each width.")
      .def(
          "replace",
          [](Division& division, Schedule& schedule) { std::move(division).replace(schedule); },
          "schedule"_a, "Makes the schedule it was made from this one.");
  m.def("estimate", &estimate_whole, "schedule"_a, "costs"_a,
        "The time that the waves of a schedule that is not divided take, one after the other.");
  m.def("divide", &divide_python, "schedule"_a, "shards"_a, "cell_device"_a, "widths"_a, "costs"_a,
        "copy_cost"_a, "Divides a schedule by the device of each cell and into shards.");
}

}  // namespace jaxrec
