// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/placement.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include <optional>
#include <tuple>
#include <vector>

#include "kerf/base/error.h"
#include "kerf/emit/report/placement_table.h"
#include "kerf/place/residence/given_residences.h"
#include "kerf/plan/row_times.h"
#include "python/src/interruptible.h"
#include "python/src/module.h"

namespace kerf::bindings {
namespace {

ResidenceProblem make_problem(const std::vector<std::int64_t>& bytes,
                              const std::vector<double>& seconds_of,
                              std::optional<std::int64_t> memory, double bytes_per_second,
                              double latency) {
  ResidenceProblem problem;
  for (std::size_t u = 0; u < bytes.size(); ++u) {
    problem.units.push_back({{bytes[u]}, {seconds_of.at(u) * 1e9}});
  }
  problem.memory = memory ? Bytes{*memory} : kNoLimit;
  problem.bytes_per_nanosecond = bytes_per_second * 1e-9;
  problem.copy_latency = {latency * 1e9};
  return problem;
}

Placement place(const std::vector<std::string>& paths, const std::vector<std::int64_t>& bytes,
                const std::vector<double>& seconds_of, const std::vector<bool>& stays,
                std::int64_t memory, double bytes_per_second, double latency,
                const std::string& device, const std::string& source) {
  ResidenceProblem problem = make_problem(bytes, seconds_of, memory, bytes_per_second, latency);
  for (std::size_t u = 0; u < stays.size(); ++u) problem.units.at(u).stays = stays[u];
  const auto outcome = place_units(problem, paths, device, source);
  if (!outcome) throw Error(ErrorKind::invalid_argument, outcome.reason());
  return *outcome;
}

Placement place_given(const std::vector<std::string>& paths, const std::vector<std::int64_t>& bytes,
                      const std::vector<double>& seconds_of, const std::vector<bool>& resident,
                      std::optional<std::int64_t> memory, double bytes_per_second, double latency,
                      const std::string& device, const std::string& source) {
  std::vector<Residence> residences;
  for (const bool stays : resident) {
    residences.push_back(stays ? Residence::resident : Residence::streamed);
  }
  const ResidenceProblem problem =
      make_problem(bytes, seconds_of, memory, bytes_per_second, latency);
  const auto outcome = place_as_given(problem, residences, paths, device, source);
  if (!outcome) throw Error(ErrorKind::invalid_argument, outcome.reason());
  return *outcome;
}

// What the host may compute: (rows, seconds per byte of weights on the device, on the host), and by
// unit (may it be the host's, is it a table, bytes of arguments and results for each row).
using GivenSpeed = std::tuple<std::int64_t, double, double>;
using GivenWork = std::tuple<bool, bool, std::int64_t>;

void share(Placement& placement, const std::vector<GivenSpeed>& speeds,
           const std::vector<GivenWork>& work, double each) {
  std::vector<WeightSpeed> by_rows;
  for (const auto& [rows, on_device, on_host] : speeds) {
    by_rows.push_back({rows, on_device * 1e9, on_host * 1e9});
  }
  KERF_CHECK(work.size() == placement.units.size(), "work of each unit");
  std::vector<UnitWork> units;
  for (std::size_t u = 0; u < work.size(); ++u) {
    const auto& [may_be_host, is_table, row] = work[u];
    units.push_back({placement.units[u].bytes, may_be_host, is_table, Bytes{row}});
  }
  give_to_host(placement, row_times(units, by_rows, placement.bytes_per_nanosecond, {each * 1e9}));
}

}  // namespace

void init_placement(py::module_& m) {
  py::class_<Placement::Unit>(m, "PlacedUnit", "A module whose weights come and go together.")
      .def_readonly("path", &Placement::Unit::path, "Of the module.")
      .def_property_readonly(
          "bytes", [](const Placement::Unit& u) { return u.bytes.count; }, "Of its weights.")
      .def_property_readonly(
          "residence", [](const Placement::Unit& u) { return std::string(to_string(u.residence)); },
          "Where its weights are: resident, streamed or host.")
      .def_property_readonly(
          "time", [](const Placement::Unit& u) { return seconds(u.time); }, "Of computing it once.")
      .def_property_readonly(
          "copy_time", [](const Placement::Unit& u) { return seconds(u.copy); },
          "Of its weights' way; 0 unless it is streamed.")
      .def_readonly("host_rows", &Placement::Unit::host_rows,
                    "The host computes it in calls of at most so many rows; 0: never.");
  py::class_<Placement>(m, "Placement", "Where the weights of a model are; print it for a table.")
      .def_readonly("device", &Placement::device, "That computes.")
      .def_readonly("source", &Placement::source, "What streamed weights come from.")
      .def_readonly("units", &Placement::units, "In the order of their use.")
      .def_readonly("slots", &Placement::slots, "That streamed units share.")
      .def_property_readonly(
          "slot_bytes", [](const Placement& p) { return p.slot_bytes.count; }, "Of each slot.")
      .def_property_readonly(
          "memory", [](const Placement& p) { return p.memory.count; }, "Allowed for weights.")
      .def_property_readonly(
          "device_bytes", [](const Placement& p) { return p.device_bytes().count; },
          "What the device holds: residents and slots.")
      .def_property_readonly(
          "time", [](const Placement& p) { return seconds(p.time); }, "Predicted, of a call.")
      .def_property_readonly(
          "lower_bound", [](const Placement& p) { return p.bound.value * 1e-9; },
          "No placement within the memory takes less.")
      .def_property_readonly(
          "bound_argument", [](const Placement& p) { return p.bound.argument; }, "Why not.")
      .def_property_readonly(
          "time_with_host",
          [](const Placement& p) {
            return p.with_host ? std::optional(seconds(p.with_host->time)) : std::nullopt;
          },
          "Predicted, of a call of one row, in which the host computes units; None: it does not.")
      .def_property_readonly(
          "lower_bound_with_host",
          [](const Placement& p) {
            return p.with_host ? std::optional(p.with_host->bound.value * 1e-9) : std::nullopt;
          },
          "No placement within the memory takes less, wherever units are computed.")
      .def("give_to_host", &share, py::arg("speeds"), py::arg("work"), py::arg("each"),
           "Decides what the host computes in calls of few rows.")
      .def("__str__", &placement_table)
      .def("__repr__", [](const Placement& p) {
        return fmt::format("kerf.Placement({} units, {} on {})", p.units.size(),
                           to_string(p.device_bytes()), p.device);
      });
  m.def("host_wait", [] { return seconds(kHostWait); }, "Seconds that a unit on the host waits.");
  m.def("place_units", interruptible(&place), py::arg("paths"), py::arg("bytes"),
        py::arg("seconds"), py::arg("stays"), py::arg("memory"), py::arg("bytes_per_second"),
        py::arg("latency"), py::arg("device"), py::arg("source"));
  m.def("place_as_given", interruptible(&place_given), py::arg("paths"), py::arg("bytes"),
        py::arg("seconds"), py::arg("resident"), py::arg("memory"), py::arg("bytes_per_second"),
        py::arg("latency"), py::arg("device"), py::arg("source"));
}

}  // namespace kerf::bindings
