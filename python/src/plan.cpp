// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>

#include "kerf/emit/report/report_json.h"
#include "kerf/emit/report/table.h"
#include "kerf/plan/infeasible.h"
#include "python/src/module.h"

namespace kerf::bindings {
namespace {

double seconds(Nanoseconds time) { return time.count * 1e-9; }
// Of a value of the plan's objective: seconds, or bytes.
double objective_unit(const Plan& plan, double value) {
  return plan.objective == Objective::memory ? value : value * 1e-9;
}

// Records that stand alone: names in place of ids, seconds and bytes as plain numbers.
struct StageRecord {
  Stage stage;
  std::size_t index = 0;
  std::string device;
  std::vector<std::string> nodes;
};

struct CutRecord {
  Cut cut;
};

struct DeviceRecord {
  std::string name;
  DeviceLoad load;
  DeviceMemory memory;
};

std::vector<StageRecord> stages_of(const Plan& plan) {
  std::vector<StageRecord> out;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const Stage& stage = plan.stages[s];
    StageRecord record{stage, s, plan.cluster.device(stage.device).name, {}};
    for (const NodeId id : stage.nodes) record.nodes.push_back(plan.node_names[id.index()]);
    out.push_back(std::move(record));
  }
  return out;
}

std::vector<CutRecord> cuts_of(const Plan& plan) { return {plan.cuts.begin(), plan.cuts.end()}; }

std::vector<DeviceRecord> devices_of(const Plan& plan) {
  std::vector<DeviceRecord> out;
  for (std::size_t d = 0; d < plan.cluster.num_devices(); ++d) {
    out.push_back({plan.cluster.devices[d].name, plan.loads.at(d), plan.memory.at(d)});
  }
  return out;
}

std::vector<std::size_t> indices_of(const std::vector<NodeId>& nodes) {
  std::vector<std::size_t> out;
  for (const NodeId id : nodes) out.push_back(id.index());
  return out;
}

std::vector<std::size_t> indices_of(const std::vector<StageId>& stages) {
  std::vector<std::size_t> out;
  for (const StageId id : stages) out.push_back(id.index());
  return out;
}

std::string summary(const Plan& plan) {
  return fmt::format("kerf.Plan('{}', {} stages, {}, {} micro-batches, step {})", plan.graph_name,
                     plan.num_stages(), plan.method, plan.n_microbatches,
                     to_string(plan.step_time));
}

// A plan made in this process remembers its graph, for pipelines and for module names in tables.
// Files do not hold it.
py::object graph_of(const py::object& plan) {
  return plan.attr("__dict__").attr("get")("_graph", py::none());
}

void set_graph(const py::object& plan, const py::object& graph) {
  if (!graph.is_none()) check_plan_matches(plan.cast<const Plan&>(), graph.cast<const Graph&>());
  plan.attr("__dict__")["_graph"] = graph;
}

std::string table_of(const py::object& plan) {
  const py::object graph = graph_of(plan);
  std::string table =
      plan_table(plan.cast<const Plan&>(), graph.is_none() ? nullptr : graph.cast<const Graph*>());
  table.pop_back();  // print() adds the last newline
  return table;
}

py::tuple state_of(const py::object& plan) {
  return py::make_tuple(print_plan(plan.cast<const Plan&>()), plan.attr("__dict__"));
}

std::pair<Plan, py::dict> from_state(const py::tuple& state) {
  return {parse_plan(state[0].cast<std::string>(), "pickle"), state[1].cast<py::dict>()};
}

void bind_records(py::module_& m) {
  py::class_<StageRecord>(m, "Stage", "Nodes that run together on one device.")
      .def_readonly("index", &StageRecord::index)
      .def_readonly("device", &StageRecord::device)
      .def_readonly("nodes", &StageRecord::nodes, "Names, in the graph's order.")
      .def_property_readonly("node_indices",
                             [](const StageRecord& r) { return indices_of(r.stage.nodes); })
      .def_property_readonly("after",
                             [](const StageRecord& r) { return indices_of(r.stage.after); })
      .def_property_readonly("time", [](const StageRecord& r) { return seconds(r.stage.time); })
      .def_property_readonly("weight_bytes",
                             [](const StageRecord& r) { return r.stage.weights.count; })
      .def_property_readonly("activation_bytes",
                             [](const StageRecord& r) { return r.stage.activations.count; })
      .def_property_readonly("input_bytes",
                             [](const StageRecord& r) { return r.stage.inputs.count; })
      .def_property_readonly("output_bytes",
                             [](const StageRecord& r) { return r.stage.outputs.count; })
      .def("__repr__", [](const StageRecord& r) {
        return fmt::format("kerf.Stage({} on {}, {} nodes, {})", r.index, r.device, r.nodes.size(),
                           to_string(r.stage.time));
      });

  py::class_<CutRecord>(m, "Cut", "A tensor that leaves the stage that makes it.")
      .def_property_readonly("tensor", [](const CutRecord& r) { return r.cut.tensor; })
      .def_property_readonly("bytes", [](const CutRecord& r) { return r.cut.bytes.count; })
      .def_property_readonly("from_stage", [](const CutRecord& r) { return r.cut.from.index(); })
      .def_property_readonly("to_stages", [](const CutRecord& r) { return indices_of(r.cut.to); })
      .def("__repr__", [](const CutRecord& r) {
        return fmt::format("kerf.Cut({}, {}, stage {} to {})", r.cut.tensor, to_string(r.cut.bytes),
                           r.cut.from.index(), fmt::join(indices_of(r.cut.to), ", "));
      });

  py::class_<DeviceRecord>(m, "DeviceUse", "What a plan asks of one device.")
      .def_readonly("name", &DeviceRecord::name)
      .def_property_readonly("compute",
                             [](const DeviceRecord& r) { return seconds(r.load.compute); })
      .def_property_readonly("communication",
                             [](const DeviceRecord& r) { return seconds(r.load.communication); })
      .def_property_readonly("weight_bytes",
                             [](const DeviceRecord& r) { return r.memory.weights.count; })
      .def_property_readonly("activation_bytes",
                             [](const DeviceRecord& r) { return r.memory.activations.count; })
      .def_property_readonly("predicted_bytes",
                             [](const DeviceRecord& r) { return r.memory.predicted.count; })
      .def_property_readonly("limit",
                             [](const DeviceRecord& r) {
                               return r.memory.limited ? std::optional(r.memory.limit.count)
                                                       : std::nullopt;
                             })
      .def("__repr__", [](const DeviceRecord& r) {
        return fmt::format("kerf.DeviceUse({}, busy {}, {})", r.name, to_string(r.load.busy()),
                           to_string(r.memory.predicted));
      });

  py::class_<LowerBound>(m, "LowerBound", "What no plan for the same problem can beat.")
      .def_readonly("name", &LowerBound::name)
      .def_readonly("value", &LowerBound::value, "Seconds; bytes for the objective memory.")
      .def_readonly("argument", &LowerBound::argument);
}

void bind_infeasible(py::module_& m) {
  py::class_<Infeasible>(m, "Infeasible", "Why there is no plan.")
      .def_readonly("method", &Infeasible::method)
      .def_readonly("device", &Infeasible::device)
      .def_property_readonly("needed", [](const Infeasible& i) { return i.needed.count; })
      .def_property_readonly("limit", [](const Infeasible& i) { return i.limit.count; })
      .def_property_readonly("short_by", [](const Infeasible& i) { return i.short_by.count; })
      .def_readonly("what_would_help", &Infeasible::what_would_help)
      .def("__str__", &Infeasible::message)
      .def("__repr__",
           [](const Infeasible& i) {
             return fmt::format("kerf.Infeasible({}, {} short of {})", i.method, i.device,
                                to_string(i.short_by));
           })
      .def(py::pickle(
          [](const Infeasible& i) {
            return py::make_tuple(i.method, i.tightest.valid(), i.tightest.index(), i.device,
                                  i.needed.count, i.limit.count, i.short_by.count,
                                  i.what_would_help);
          },
          [](const py::tuple& s) {
            return Infeasible{s[0].cast<std::string>(),
                              s[1].cast<bool>() ? DeviceId(s[2].cast<std::size_t>()) : DeviceId{},
                              s[3].cast<std::string>(),
                              {s[4].cast<std::int64_t>()},
                              {s[5].cast<std::int64_t>()},
                              {s[6].cast<std::int64_t>()},
                              s[7].cast<std::string>()};
          }));
}

}  // namespace

void init_plan(py::module_& m) {
  bind_records(m);
  bind_infeasible(m);
  py::class_<Plan>(m, "Plan", py::dynamic_attr(),
                   "Where every node runs, and what that is predicted to cost.")
      .def_property("graph", &graph_of, &set_graph, "The graph it was made from; None if loaded.")
      .def_readonly("graph_hash", &Plan::graph_hash)
      .def_readonly("graph_name", &Plan::graph_name)
      .def_readonly("method", &Plan::method)
      .def_property_readonly("objective",
                             [](const Plan& p) { return std::string(to_string(p.objective)); })
      .def_readonly("comm_model", &Plan::comm_model)
      .def_readonly("seed", &Plan::seed)
      .def_readonly("truncated", &Plan::truncated)
      .def_readonly("contiguous", &Plan::contiguous)
      .def_property_readonly("profile_source",
                             [](const Plan& p) { return std::string(to_string(p.profile_source)); })
      .def_readonly("profile_kind", &Plan::profile_kind)
      .def_readonly("profile_batch", &Plan::profile_batch)
      .def_property_readonly("cluster", [](const Plan& p) { return p.cluster; })
      .def_readonly("schedule", &Plan::schedule)
      .def_readonly("n_microbatches", &Plan::n_microbatches)
      .def_readonly("batch", &Plan::batch)
      .def_readonly("micro_batch", &Plan::micro_batch)
      .def_property_readonly("stages", &stages_of)
      .def_property_readonly("replicas", &Plan::replica_names,
                             "Further copies: for each the device of every stage.")
      .def_property_readonly("cuts", &cuts_of)
      .def_property_readonly("devices", &devices_of)
      .def_property_readonly("cut_bytes", [](const Plan& p) { return p.cut_bytes().count; })
      .def_property_readonly("busiest", [](const Plan& p) { return seconds(p.busiest); })
      .def_property_readonly("predicted_step_time",
                             [](const Plan& p) { return seconds(p.step_time); })
      .def_property_readonly("predicted_latency", [](const Plan& p) { return seconds(p.latency); })
      .def_property_readonly("predicted_throughput", [](const Plan& p) { return p.throughput; })
      .def_readonly("bubble", &Plan::bubble)
      .def_property_readonly("lower_bound",
                             [](const Plan& p) {
                               LowerBound bound = p.lower_bound;
                               bound.value = objective_unit(p, bound.value);
                               return bound;
                             })
      .def_property_readonly("objective_value",
                             [](const Plan& p) { return objective_unit(p, p.objective_value()); })
      .def_property_readonly("gap", &Plan::gap)
      .def_property_readonly("notes", [](const Plan& p) { return p.notes; })
      .def(
          "save", [](const Plan& p, const std::filesystem::path& path) { save_plan(p, path); },
          py::arg("path"))
      .def(
          "report_json", [](const Plan& p) { return report_json(p).dump(1); },
          "The figures of the table as JSON, in seconds and bytes.")
      .def("__len__", &Plan::num_stages)
      .def("__repr__", &summary)
      .def("__str__", &table_of)
      .def(
          "__eq__", [](const Plan& a, const Plan& b) { return a == b; }, py::is_operator())
      .def(py::pickle(&state_of, &from_state));

  m.def(
      "load_plan", [](const std::filesystem::path& path) { return load_plan(path); },
      py::arg("path"));
}

}  // namespace kerf::bindings
