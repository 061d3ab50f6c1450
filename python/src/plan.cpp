// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pybind11/stl.h>
#include <pybind11/stl/filesystem.h>
#include <nlohmann/json.hpp>

#include "kerf/base/file.h"
#include "kerf/emit/report/analysis.h"
#include "kerf/emit/report/report_json.h"
#include "kerf/emit/report/table.h"
#include "kerf/plan/infeasible.h"
#include "python/src/module.h"

namespace kerf::bindings {
namespace {

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

std::string plan_summary(const Plan& plan) {
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
  if (!graph.is_none() && !py::isinstance<Graph>(graph)) {
    throw py::type_error(fmt::format(
        "[kerf.Plan.graph] the value is of class {}; expected a graph; take one from kerf.trace or "
        "kerf.load_graph",
        py::type::of(graph).attr("__name__").cast<std::string>()));
  }
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

// With the plan that it is of, so that it can be printed and saved.
struct AnalysisRecord {
  Plan plan;
  Analysis analysis;

  std::string json() const { return analysis_json(plan, analysis).dump(1); }
  void save(const std::filesystem::path& path) const {
    const bool as_json = path.extension() == ".json";
    write_file(path.string(), as_json ? json() + "\n" : analysis_table(plan, analysis));
  }
};

AnalysisRecord analysis_of(const py::object& plan, const Timeline* timeline) {
  const py::object graph = graph_of(plan);
  const auto* known = graph.is_none() ? nullptr : graph.cast<const Graph*>();
  const auto& of = plan.cast<const Plan&>();
  return {of, analyse(of, known, timeline)};
}

// What else a plan made in this process remembers.
py::object remembered(const py::object& plan, const char* name) {
  return plan.attr("__dict__").attr("get")(name, py::none());
}

py::tuple plan_state(const py::object& plan) {
  return py::make_tuple(print_plan(plan.cast<const Plan&>()), plan.attr("__dict__"));
}

std::pair<Plan, py::dict> plan_from_state(const py::tuple& state) {
  return {parse_plan(state[0].cast<std::string>(), "pickle"), state[1].cast<py::dict>()};
}

void bind_records(py::module_& m) {
  py::class_<StageRecord>(m, "Stage", "Nodes that run together on one device.")
      .def_readonly("index", &StageRecord::index, "Its position in plan.stages.")
      .def_readonly("device", &StageRecord::device, "The name of its device.")
      .def_readonly("nodes", &StageRecord::nodes, "Names, in the graph's order.")
      .def_property_readonly(
          "node_indices", [](const StageRecord& r) { return indices_of(r.stage.nodes); },
          "Positions of its nodes in the graph.")
      .def_property_readonly(
          "after", [](const StageRecord& r) { return indices_of(r.stage.after); },
          "Stages that must finish first.")
      .def_property_readonly(
          "time", [](const StageRecord& r) { return seconds(r.stage.time); },
          "Seconds of compute for one micro-batch.")
      .def_property_readonly(
          "weight_bytes", [](const StageRecord& r) { return r.stage.weights.count; },
          "Bytes of its weights.")
      .def_property_readonly(
          "activation_bytes", [](const StageRecord& r) { return r.stage.activations.count; },
          "Peak bytes of live tensors for one micro-batch.")
      .def_property_readonly(
          "input_bytes", [](const StageRecord& r) { return r.stage.inputs.count; },
          "Bytes that it receives for one micro-batch.")
      .def_property_readonly(
          "output_bytes", [](const StageRecord& r) { return r.stage.outputs.count; },
          "Bytes that others receive from it for one micro-batch.")
      .def_property_readonly(
          "backward", [](const StageRecord& r) { return seconds(r.stage.backward); },
          "Training: seconds of its backward for one micro-batch, recomputation included.")
      .def_property_readonly(
          "weight_gradients",
          [](const StageRecord& r) { return seconds(r.stage.weight_gradients); },
          "Training: the part of `backward` that makes gradients of weights, in seconds.")
      .def_property_readonly(
          "recompute", [](const StageRecord& r) { return seconds(r.stage.recompute); },
          "Training: the part of `backward` that computes forwards again, in seconds.")
      .def_property_readonly(
          "saved_bytes", [](const StageRecord& r) { return r.stage.saved.count; },
          "Training: bytes kept from its forward to its backward, for one micro-batch.")
      .def_property_readonly(
          "gradient_bytes", [](const StageRecord& r) { return r.stage.gradients.count; },
          "Training: bytes of its weights' gradients.")
      .def_property_readonly(
          "optimizer_bytes", [](const StageRecord& r) { return r.stage.optimizer.count; },
          "Training: bytes of the optimizer's state.")
      .def("__repr__", [](const StageRecord& r) {
        return fmt::format("kerf.Stage({} on {}, {} nodes, {})", r.index, r.device, r.nodes.size(),
                           to_string(r.stage.time));
      });

  py::class_<CutRecord>(m, "Cut", "A tensor that leaves the stage that makes it.")
      .def_property_readonly(
          "tensor", [](const CutRecord& r) { return r.cut.tensor; },
          "The name of the value in the graph.")
      .def_property_readonly(
          "bytes", [](const CutRecord& r) { return r.cut.bytes.count; },
          "Its size for one micro-batch.")
      .def_property_readonly(
          "from_stage", [](const CutRecord& r) { return r.cut.from.index(); },
          "The stage that makes it.")
      .def_property_readonly(
          "to_stages", [](const CutRecord& r) { return indices_of(r.cut.to); },
          "The stages that need it.")
      .def_property_readonly(
          "gradient_stages", [](const CutRecord& r) { return indices_of(r.cut.gradients); },
          "Training: the stages that send its gradient back.")
      .def("__repr__", [](const CutRecord& r) {
        return fmt::format("kerf.Cut({}, {}, stage {} to {})", r.cut.tensor, to_string(r.cut.bytes),
                           r.cut.from.index(), fmt::join(indices_of(r.cut.to), ", "));
      });

  py::class_<DeviceRecord>(m, "DeviceUse", "A plan's load and memory on one device.")
      .def_readonly("name", &DeviceRecord::name, "The name of the device.")
      .def_property_readonly(
          "compute", [](const DeviceRecord& r) { return seconds(r.load.compute); },
          "Seconds of compute for one micro-batch.")
      .def_property_readonly(
          "communication", [](const DeviceRecord& r) { return seconds(r.load.communication); },
          "Seconds of transfers for one micro-batch.")
      .def_property_readonly(
          "weight_bytes", [](const DeviceRecord& r) { return r.memory.weights.count; },
          "Bytes of weights that live on it.")
      .def_property_readonly(
          "gradient_bytes", [](const DeviceRecord& r) { return r.memory.gradients.count; },
          "Training: bytes of its weights' gradients.")
      .def_property_readonly(
          "optimizer_bytes", [](const DeviceRecord& r) { return r.memory.optimizer.count; },
          "Training: bytes of the optimizer's state.")
      .def_property_readonly(
          "activation_bytes", [](const DeviceRecord& r) { return r.memory.activations.count; },
          "Peak bytes of live tensors in a step.")
      .def_property_readonly(
          "predicted_bytes", [](const DeviceRecord& r) { return r.memory.predicted.count; },
          "All of it together, checked against the limit.")
      .def_property_readonly(
          "limit",
          [](const DeviceRecord& r) {
            return r.memory.limited ? std::optional(r.memory.limit.count) : std::nullopt;
          },
          "Its limit in bytes; None: no limit.")
      .def("__repr__", [](const DeviceRecord& r) {
        return fmt::format("kerf.DeviceUse({}, busy {}, {})", r.name, to_string(r.load.busy()),
                           to_string(r.memory.predicted));
      });

  py::class_<LowerBound>(m, "LowerBound", "A value that no plan for the same problem can beat.")
      .def_readonly("name", &LowerBound::name, "Which bound is the tightest.")
      .def_readonly("value", &LowerBound::value, "Seconds; bytes for the objective memory.")
      .def_readonly("argument", &LowerBound::argument, "The sentence that proves it.");
}

void bind_analysis(py::module_& m) {
  py::class_<AnalysisRecord>(m, "Analysis",
                             "What stages and devices do in one micro-batch, and what the split "
                             "gains; prints as tables.")
      .def_property_readonly(
          "busiest", [](const AnalysisRecord& r) { return seconds(r.analysis.busiest); },
          "Seconds of the busiest device, transfers included.")
      .def_property_readonly(
          "ideal", [](const AnalysisRecord& r) { return seconds(r.analysis.ideal); },
          "Seconds of each device if all compute were shared out perfectly.")
      .def_property_readonly(
          "sequential", [](const AnalysisRecord& r) { return seconds(r.analysis.sequential); },
          "Seconds of everything on the fastest device, nothing computed again.")
      .def_property_readonly(
          "slowdown", [](const AnalysisRecord& r) { return r.analysis.slowdown(); },
          "busiest / ideal: 1 is a perfect split.")
      .def_property_readonly(
          "expected_speedup", [](const AnalysisRecord& r) { return r.analysis.expected_speedup(); },
          "Over one device that does the same work, recomputation included.")
      .def_property_readonly(
          "speedup", [](const AnalysisRecord& r) { return r.analysis.speedup(); },
          "sequential / busiest.")
      .def_property_readonly(
          "not_contiguous", [](const AnalysisRecord& r) { return r.analysis.not_contiguous; },
          "Names of the tensors that devices send and that have gaps in memory.")
      .def("to_json", &AnalysisRecord::json, "All figures as JSON, in seconds and bytes.")
      .def("save", &AnalysisRecord::save, py::arg("path"),
           "Writes the JSON to a file that ends with .json, else the tables.")
      .def("__str__", [](const AnalysisRecord& r) {
        std::string table = analysis_table(r.plan, r.analysis);
        table.pop_back();  // print() adds the last newline
        return table;
      });
}

void bind_infeasible(py::module_& m) {
  py::class_<Infeasible>(m, "Infeasible", "Why there is no plan.")
      .def_readonly("method", &Infeasible::method, "The method that looked for a plan.")
      .def_readonly("device", &Infeasible::device, "The tightest device.")
      .def_property_readonly(
          "needed", [](const Infeasible& i) { return i.needed.count; }, "Bytes it would need.")
      .def_property_readonly(
          "limit", [](const Infeasible& i) { return i.limit.count; }, "Bytes it has.")
      .def_property_readonly(
          "short_by", [](const Infeasible& i) { return i.short_by.count; },
          "Bytes that are missing.")
      .def_property_readonly(
          "what_would_help", [](const Infeasible& i) { return i.help(); }, "What to change.")
      .def_property_readonly(
          "proved", [](const Infeasible& i) { return i.caveat.empty(); },
          "Whether no plan can fit; False: none was found.")
      .def_readonly("timed_out", &Infeasible::timed_out,
                    "The clock ended something: another run may find a plan.")
      .def("__str__", [](const Infeasible& i) { return i.message(); })
      .def("__repr__",
           [](const Infeasible& i) {
             return fmt::format("kerf.Infeasible({}, {} short of {})", i.method, i.device,
                                to_string(i.short_by));
           })
      .def(py::pickle(
          [](const Infeasible& i) {
            return py::make_tuple(i.method, i.tightest.valid(), i.tightest.index(), i.device,
                                  i.needed.count, i.limit.count, i.short_by.count, i.help(),
                                  i.timed_out, i.caveat);
          },
          [](const py::tuple& s) {
            return Infeasible{s[0].cast<std::string>(),
                              s[1].cast<bool>() ? DeviceId(s[2].cast<std::size_t>()) : DeviceId{},
                              s[3].cast<std::string>(),
                              {s[4].cast<std::int64_t>()},
                              {s[5].cast<std::int64_t>()},
                              {s[6].cast<std::int64_t>()},
                              s[7].cast<std::string>(),
                              s[8].cast<bool>(),
                              s[9].cast<std::string>()};
          }));
}

}  // namespace

void init_plan(py::module_& m) {
  bind_records(m);
  bind_infeasible(m);
  bind_analysis(m);
  py::class_<Plan>(m, "Plan", py::dynamic_attr(),
                   "Where every node runs, and what that is predicted to cost.")
      .def_property("graph", &graph_of, &set_graph, "The graph it was made from; None if loaded.")
      .def_property_readonly(
          "eval_graph", [](const py::object& p) { return remembered(p, "_eval_graph"); },
          "The same call traced in eval mode, where kerf.pipe_model made the plan of a model in "
          "train mode; else None.")
      .def_property_readonly(
          "profile", [](const py::object& p) { return remembered(p, "_profile"); },
          "The costs that kerf.pipe_model measured or was given, before weight functions; else "
          "None.")
      .def_readonly("graph_hash", &Plan::graph_hash, "The hash of the graph it was made for.")
      .def_readonly("graph_name", &Plan::graph_name, "The name of that graph.")
      .def_readonly("method", &Plan::method, "The method that found it.")
      .def_property_readonly(
          "objective", [](const Plan& p) { return std::string(to_string(p.objective)); },
          "What was minimised: 'throughput', 'latency', 'step' or 'memory'.")
      .def_property_readonly(
          "comm_model", [](const Plan& p) { return std::string(to_string(p.comm_model)); },
          "How transfers were costed.")
      .def_readonly("seed", &Plan::seed, "The seed of the search.")
      .def_readonly("timed_out", &Plan::timed_out,
                    "Whether the clock ended something: another run may give another plan.")
      .def_readonly("truncated", &Plan::truncated,
                    "Whether a budget ended the search before it was done.")
      .def_readonly("contiguous", &Plan::contiguous,
                    "Whether every stage is a run of the graph's order.")
      .def_property_readonly(
          "profile_source", [](const Plan& p) { return std::string(to_string(p.profile_source)); },
          "Where costs came from: 'measured', 'estimated' or 'given'.")
      .def_readonly("profile_kind", &Plan::profile_kind, "The kind of device the costs are for.")
      .def_readonly("profile_batch", &Plan::profile_batch, "The batch size the costs are for.")
      .def_property_readonly(
          "cluster", [](const Plan& p) { return p.cluster; }, "The devices and links it is for.")
      .def_readonly("schedule", &Plan::schedule, "The order in which stages take micro-batches.")
      .def_readonly("n_microbatches", &Plan::n_microbatches, "Micro-batches per batch.")
      .def_readonly("batch", &Plan::batch, "Samples per step.")
      .def_readonly("micro_batch", &Plan::micro_batch, "Samples in the largest micro-batch.")
      .def_readonly("stages_per_device", &Plan::stages_per_device,
                    "Stages per device that were asked for.")
      .def_readonly("training", &Plan::training, "Whether a step includes backward.")
      .def_readonly("optimizer", &Plan::optimizer, "Training: the name of the optimizer.")
      .def_readonly("recompute", &Plan::recompute, "Training: what was asked for.")
      .def_property_readonly(
          "recomputed", [](const Plan& plan) { return plan.recomputed; },
          "Training: modules and regions that run forward again in backward.")
      .def_property_readonly(
          "gradient_bytes", [](const Plan& plan) { return plan.gradient_bytes().count; },
          "Training: bytes of gradients that go from device to device, for one micro-batch.")
      .def_property_readonly("stages", &stages_of, "Stage records, in order.")
      .def_property_readonly("replicas", &Plan::replica_names,
                             "Other copies of the plan: for each, the device of every stage.")
      .def_property_readonly("cuts", &cuts_of,
                             "Cut records: the tensors that cross from stage to stage.")
      .def_property_readonly("devices", &devices_of, "DeviceUse records, one per device.")
      .def_property_readonly(
          "cut_bytes", [](const Plan& p) { return p.cut_bytes().count; },
          "Bytes that cross cuts for one micro-batch.")
      .def_property_readonly(
          "busiest", [](const Plan& p) { return seconds(p.busiest); },
          "Seconds for which the busiest device works on one micro-batch.")
      .def_property_readonly(
          "predicted_step_time", [](const Plan& p) { return seconds(p.step_time); },
          "Seconds for a whole batch.")
      .def_property_readonly(
          "predicted_latency", [](const Plan& p) { return seconds(p.latency); },
          "Seconds for one micro-batch, alone in the pipeline.")
      .def_property_readonly(
          "predicted_throughput", [](const Plan& p) { return p.throughput; }, "Samples per second.")
      .def_readonly("bubble", &Plan::bubble, "The share of a step in which devices wait.")
      .def_property_readonly(
          "lower_bound",
          [](const Plan& p) {
            LowerBound bound = p.lower_bound;
            bound.value = objective_unit(p, bound.value);
            return bound;
          },
          "A value that no plan for this problem can beat, and why.")
      .def_property_readonly(
          "objective_value", [](const Plan& p) { return objective_unit(p, p.objective_value()); },
          "What was minimised: seconds; bytes for the objective memory.")
      .def_property_readonly("gap", &Plan::gap,
                             "How far objective_value may be above the optimum: 0.02 is 2 %.")
      .def_property_readonly(
          "notes", [](const Plan& p) { return p.notes; }, "What a user should know about the plan.")
      .def(
          "save", [](const Plan& p, const std::filesystem::path& path) { save_plan(p, path); },
          py::arg("path"), "Writes plan.json; the file is replaced whole or not at all.")
      .def(
          "report_json", [](const Plan& p) { return report_json(p).dump(1); },
          "The figures of the table as JSON, in seconds and bytes.")
      .def("analysis", &analysis_of, py::arg("timeline") = nullptr,
           "What stages and devices do in one micro-batch, and what the split gains: predicted, or "
           "with the timeline of a run measured.")
      .def("__len__", &Plan::num_stages)
      .def("__repr__", &plan_summary)
      .def("__str__", &table_of)
      .def(
          "__eq__", [](const Plan& a, const Plan& b) { return a == b; }, py::is_operator())
      .def(py::pickle(&plan_state, &plan_from_state));

  m.def(
      "load_plan", [](const std::filesystem::path& path) { return load_plan(path); },
      py::arg("path"), "Reads a plan that Plan.save wrote. It has no graph until one is given.");
}

}  // namespace kerf::bindings
