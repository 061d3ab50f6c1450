// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// Planning. Long calls let other Python threads run and answer signals.
#include <fmt/format.h>
#include <pybind11/stl.h>
#include <nlohmann/json.hpp>

#include <map>
#include <variant>

#include "kerf/driver/compare.h"
#include "kerf/driver/make_problem.h"
#include "kerf/driver/plan.h"
#include "kerf/driver/replan.h"
#include "kerf/driver/stream_window.h"
#include "kerf/emit/report/comparison_table.h"
#include "kerf/plan/comm_model.h"
#include "kerf/plan/schedule/schedule.h"
#include "python/src/interruptible.h"
#include "python/src/module.h"
#include "python/src/recompute.h"
#include "python/src/times.h"

namespace kerf::bindings {
namespace {

using Answer = std::variant<Plan, Infeasible>;

Answer answer(Outcome<Plan, Infeasible> outcome) {
  if (!outcome) return outcome.reason();
  return std::move(*outcome);
}

// None for a profile: the costs are estimated.
using Costs = std::optional<Profile>;

// What kerf.plan and kerf.compare ask for alike.
ProblemSettings settings_of(const std::string& objective, const std::string& comm_model,
                            const std::string& schedule, int n_microbatches, std::int64_t batch,
                            std::uint64_t seed, bool training, const std::string& optimizer,
                            const Recompute& recompute, int stages_per_device) {
  return {.objective = parse_objective(objective),
          .comm_model = parse_comm_model(comm_model),
          .schedule = schedule,
          .n_microbatches = n_microbatches,
          .batch = batch,
          .seed = seed,
          .stages_per_device = stages_per_device,
          .training = training,
          .optimizer = optimizer,
          .recompute = to_choice(recompute)};
}

Answer plan_graph(const Graph& graph, const Costs& profile, const Cluster& cluster,
                  const std::string& method, const std::string& objective,
                  const std::string& comm_model, const std::string& schedule, int n_microbatches,
                  std::int64_t batch, std::uint64_t seed, std::int64_t work_limit,
                  double time_budget, int threads, bool mixed, int stages,
                  const std::string& minimise, double imbalance, bool saturate_host,
                  std::map<std::string, std::int64_t> node_to_partition,
                  std::map<std::int64_t, std::string> partition_to_device, bool training,
                  const std::string& optimizer, const Recompute& recompute, int stages_per_device,
                  const std::map<std::string, double>& transfer_times, bool keep_last_stage) {
  ProblemSettings settings = settings_of(objective, comm_model, schedule, n_microbatches, batch,
                                         seed, training, optimizer, recompute, stages_per_device);
  settings.transfer_times = to_times(transfer_times);
  settings.keep_last_stage = keep_last_stage;
  const Problem problem = make_problem(graph, cluster, profile, settings);
  return answer(plan(problem, method,
                     {.work_limit = work_limit,
                      .time_budget = time_budget,
                      .threads = threads,
                      .saturate_host = saturate_host,
                      .mixed = mixed,
                      .method = {{stages}, {place::parse_minimise(minimise), imbalance}},
                      .node_to_partition = std::move(node_to_partition),
                      .partition_to_device = std::move(partition_to_device)}));
}

// Names, or one text as the command line takes it.
using MethodList = std::variant<std::string, std::vector<std::string>>;

Comparison compare_on_graph(const Graph& graph, const Costs& profile, const Cluster& cluster,
                            const MethodList& methods, const std::string& objective,
                            const std::string& comm_model, const std::string& schedule,
                            int n_microbatches, std::int64_t batch, std::uint64_t seed,
                            double time_budget, int threads, bool mixed, bool training,
                            const std::string& optimizer, const Recompute& recompute,
                            int stages_per_device) {
  const ProblemSettings settings =
      settings_of(objective, comm_model, schedule, n_microbatches, batch, seed, training, optimizer,
                  recompute, stages_per_device);
  const Problem problem = make_problem(graph, cluster, profile, settings);
  const auto* text = std::get_if<std::string>(&methods);
  return compare(
      problem, text != nullptr ? parse_methods(*text) : std::get<std::vector<std::string>>(methods),
      {.time_budget = time_budget, .threads = threads, .mixed = mixed});
}

[[noreturn]] void refuse(const std::string& found, const std::string& expected) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[kerf.make_plan] {}; expected {}", found, expected));
}

std::vector<std::vector<NodeId>> to_nodes(const Graph& graph,
                                          const std::vector<std::vector<std::size_t>>& stages) {
  std::vector<std::vector<NodeId>> out;
  for (const auto& stage : stages) {
    auto& ids = out.emplace_back();
    for (const std::size_t index : stage) {
      if (index >= graph.num_nodes()) {
        refuse(fmt::format("node {}", index), fmt::format("less than {}", graph.num_nodes()));
      }
      ids.emplace_back(index);
    }
  }
  return out;
}

std::vector<DeviceId> to_devices(const Cluster& cluster, const std::vector<std::string>& names) {
  std::vector<DeviceId> out;
  for (const std::string& name : names) {
    out.push_back(cluster.find_device(name));
    if (!out.back().valid()) refuse(fmt::format("device '{}'", name), "one of the cluster's");
  }
  return out;
}

// The cluster's speeds are taken as they are given.
Answer place_by_hand(const Graph& graph, const Profile& profile, const Cluster& cluster,
                     const std::vector<std::vector<std::size_t>>& stages,
                     const std::vector<std::string>& devices, const std::string& comm_model,
                     const std::string& schedule, int n_microbatches, std::int64_t batch) {
  const Problem problem{.graph = graph,
                        .profile = profile,
                        .cluster = cluster,
                        .comm_model = parse_comm_model(comm_model),
                        .schedule = schedule,
                        .n_microbatches = n_microbatches,
                        .batch = batch};
  if (stages.size() != devices.size()) {
    refuse(fmt::format("{} stages and {} devices", stages.size(), devices.size()),
           "a device for each stage");
  }
  return answer(place_stages(problem, to_nodes(graph, stages), to_devices(cluster, devices)));
}

Answer replan_graph(const Plan& plan, const Graph& graph, const Profile* profile,
                    std::optional<int> n_microbatches, std::optional<std::int64_t> batch) {
  return answer(replan(plan, graph, profile, n_microbatches, batch));
}

std::vector<std::pair<std::string, std::string>> list_methods() {
  std::vector<std::pair<std::string, std::string>> out;
  for (const partition::Entry& entry : partition::methods()) {
    out.emplace_back(entry.name, entry.description);
  }
  return out;
}

std::vector<std::tuple<std::string, std::string, std::string>> list_schedules() {
  std::vector<std::tuple<std::string, std::string, std::string>> out;
  for (const ScheduleKind& kind : schedule_kinds()) {
    out.emplace_back(kind.name, kind.summary, kind.idle);
  }
  return out;
}

}  // namespace

void init_partition(py::module_& m) {
  const ProblemSettings settings;
  const partition::Options options;
  const std::string objective(to_string(settings.objective));
  const std::string comm_model(to_string(settings.comm_model));
  const std::string minimise(to_string(options.method.balance.minimise));
  m.def("plan", interruptible(&plan_graph), py::arg("graph"), py::arg("profile"),
        py::arg("cluster"), py::arg("method") = std::string(kDefaultMethod),
        py::arg("objective") = objective, py::arg("comm_model") = comm_model,
        py::arg("schedule") = settings.schedule,
        py::arg("n_microbatches") = settings.n_microbatches, py::arg("batch") = settings.batch,
        py::arg("seed") = settings.seed, py::arg("work_limit") = options.work_limit,
        py::arg("time_budget") = options.time_budget, py::arg("threads") = options.threads,
        py::arg("mixed") = options.mixed, py::arg("stages") = options.method.mixed_pipe.stages,
        py::arg("minimise") = minimise, py::arg("imbalance") = options.method.balance.imbalance,
        py::arg("saturate_host") = options.saturate_host,
        py::arg("node_to_partition") = std::map<std::string, std::int64_t>{},
        py::arg("partition_to_device") = std::map<std::int64_t, std::string>{},
        py::arg("training") = settings.training, py::arg("optimizer") = settings.optimizer,
        py::arg("recompute") = Recompute(settings.recompute.mode),
        py::arg("stages_per_device") = settings.stages_per_device,
        py::arg("transfer_times") = std::map<std::string, double>{},
        py::arg("keep_last_stage") = settings.keep_last_stage);
  py::class_<ComparedMethod>(m, "ComparedMethod", "What one method made of a problem.")
      .def_readonly("method", &ComparedMethod::method, "The name of the method.")
      .def_property_readonly(
          "plan",
          [](const ComparedMethod& row) -> std::optional<Plan> {
            if (!row.found) return std::nullopt;
            return row.plan;
          },
          "Its plan; None when it found none.")
      .def_property_readonly(
          "reason",
          [](const ComparedMethod& row) -> std::optional<std::string> {
            if (row.found) return std::nullopt;
            return row.reason;
          },
          "Why there is no plan; None when there is one.")
      .def_readonly("cpu_seconds", &ComparedMethod::cpu_seconds, "Processor time that it took.");
  py::class_<Comparison>(m, "Comparison", "Several methods on one problem; prints as a table.")
      .def_property_readonly(
          "objective", [](const Comparison& c) { return std::string(to_string(c.objective)); },
          "What the plans are judged by.")
      .def_readonly("methods", &Comparison::methods, "ComparedMethod records, one per method.")
      .def(
          "to_json", [](const Comparison& c) { return comparison_json(c).dump(1); },
          "The table as JSON.")
      .def("__str__", &comparison_table)
      .def("__repr__", [](const Comparison& c) {
        return fmt::format("Comparison({} methods, {})", c.methods.size(), to_string(c.objective));
      });
  m.def("compare", interruptible(&compare_on_graph), py::arg("graph"), py::arg("profile"),
        py::arg("cluster"), py::arg("methods") = "all", py::arg("objective") = objective,
        py::arg("comm_model") = comm_model, py::arg("schedule") = settings.schedule,
        py::arg("n_microbatches") = settings.n_microbatches, py::arg("batch") = settings.batch,
        py::arg("seed") = settings.seed, py::arg("time_budget") = options.time_budget,
        py::arg("threads") = options.threads, py::arg("mixed") = options.mixed,
        py::arg("training") = settings.training, py::arg("optimizer") = settings.optimizer,
        py::arg("recompute") = Recompute(settings.recompute.mode),
        py::arg("stages_per_device") = settings.stages_per_device);
  m.def("make_plan", interruptible(&place_by_hand), py::arg("graph"), py::arg("profile"),
        py::arg("cluster"), py::arg("stages"), py::arg("devices"),
        py::arg("comm_model") = comm_model, py::arg("schedule") = settings.schedule,
        py::arg("n_microbatches") = settings.n_microbatches, py::arg("batch") = settings.batch);
  m.def("replan", interruptible(&replan_graph), py::arg("plan"), py::arg("graph"),
        py::arg("profile") = nullptr, py::arg("n_microbatches") = py::none(),
        py::arg("batch") = py::none());
  m.def("stream_window", interruptible(&stream_window), py::arg("plan"), py::arg("graph"));
  m.def("fits_stream", interruptible(&fits_stream), py::arg("plan"), py::arg("graph"),
        py::arg("window"));
  m.def("why_not_overlapped", &why_not_overlapped, py::arg("plan"), py::arg("graph"),
        py::arg("batch_independent"));
  m.def("micro_batch_size", &micro_batch_size, py::arg("graph"), py::arg("batch"),
        py::arg("n_microbatches"), "Samples a micro-batch holds at most; 0: the graph is static.");
  m.def("methods", &list_methods, "Names and descriptions of all methods.");
  m.def("schedules", &list_schedules,
        "Names, descriptions and idle shares of all schedules: shares of a training step of equal "
        "stages without transfers, for p devices, m >= p micro-batches, v stages per device; with "
        "fewer micro-batches devices stand idle longer.");
  m.def("comm_models", &comm_model_names);
}

}  // namespace kerf::bindings
