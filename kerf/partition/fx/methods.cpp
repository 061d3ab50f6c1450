// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/partition/fx/methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "kerf/base/error.h"
#include "kerf/base/stop_clock.h"
#include "kerf/partition/baseline/baseline.h"
#include "kerf/partition/chain/chain.h"
#include "kerf/partition/fx/from_problem.h"
#include "kerf/partition/raise/finish.h"

namespace kerf::partition {
namespace {

// Shares of tensors that count, from hardly any to more than all: micro-batches overlap.
constexpr double kShares[] = {1.0 / 1024, 0.06, 0.12, 0.18, 0.25, 0.35, 0.5, 0.7, 1, 1.4, 2, 3};

bool limited(const Cluster& cluster) {
  for (int group = 0; group < cluster.num_memory_groups(); ++group) {
    if (cluster.group_limited(group)) return true;
  }
  return false;
}

Outcome<Plan, Infeasible> to_plan(const Problem& problem, const fx::FromProblem& from,
                                  const fx::Answer& answer, fx::Mode mode) {
  std::vector<std::vector<NodeId>> stages;
  std::vector<DeviceId> devices;
  for (const fx::Partition& partition : answer.partitions) {
    std::vector<NodeId>& stage = stages.emplace_back();
    for (const fx::OpIndex n : partition.nodes) {
      const std::size_t unit = from.unit_of_node[n];
      if (unit == fx::FromProblem::kNoUnit) continue;
      stage.insert(stage.end(), from.units[unit].nodes.begin(), from.units[unit].nodes.end());
    }
    std::sort(stage.begin(), stage.end());
    devices.emplace_back(static_cast<std::size_t>(partition.device_ids.front()));
  }
  auto plan =
      finish_plan(problem, std::move(stages), std::move(devices), std::string(fx::to_string(mode)));
  if (plan) {
    constexpr double kNanosecondsInASecond = 1e9;
    plan->notes.push_back(fmt::format(
        "{} considers one micro-batch alone: {} if a device does one thing at a time, {} on the "
        "longest path",
        fx::to_string(mode), to_string(Nanoseconds{answer.serial_cost * kNanosecondsInASecond}),
        to_string(Nanoseconds{answer.cost * kNanosecondsInASecond})));
  }
  return plan;
}

// What the family found does not fit by Kerf's own count, or it found nothing; another cut may fit.
Outcome<Plan, Infeasible> otherwise(const Problem& problem, const Options& options, fx::Mode mode,
                                    Infeasible reason) {
  constexpr std::pair<std::string_view, Method> kOthers[] = {
      {"size", size}, {"chain", chain}, {"single", single}};
  for (const auto& [name, method] : kOthers) {
    const bool has_tried = name == "size" && mode != fx::Mode::sparse_nn;
    if (has_tried) continue;
    auto plan = method(problem, options);
    if (!plan) continue;
    plan->method = fx::to_string(mode);
    plan->truncated = plan->truncated || deadline_passed();  // the clock may have ended the search
    plan->notes.push_back(
        fmt::format("{} found nothing that fits; the stages are those of {}", plan->method, name));
    return plan;
  }
  return reason;
}

Outcome<Plan, Infeasible> run(const Problem& problem, const Options& options, fx::Mode mode) {
  std::optional<Infeasible> least;
  for (const double share : kShares) {
    fx::FromProblem from = fx::from_problem(problem, mode, limited(problem.cluster) ? share : 1);
    from.request.work_limit = options.work_limit;
    auto answer = fx::partition_graph(from.request);
    if (answer) {
      auto plan = to_plan(problem, from, *answer, mode);
      if (plan) {
        plan->truncated = deadline_passed();
        return plan;
      }
      keep_closest(least, plan.reason());
      if (deadline_passed()) break;
    } else {
      keep_closest(least, answer.reason());
      break;  // more to hold will not fit either
    }
    if (!limited(problem.cluster)) break;
  }
  return otherwise(problem, options, mode, *std::move(least));
}

[[noreturn]] void refuse(const std::string& found, const std::string& expected) {
  throw Error(ErrorKind::invalid_argument,
              fmt::format("[partition.aot] {}; expected {}", found, expected));
}

// Every node of a unit in one partition.
std::vector<std::int64_t> unit_partitions(const Problem& problem, const Options& options,
                                          const fx::FromProblem& from) {
  constexpr std::int64_t kNone = -1;
  std::vector<std::int64_t> partition(from.units.size(), kNone);
  std::vector<NodeId> witness(from.units.size());
  std::vector<std::string> missing;
  for (const Node& node : problem.graph.nodes()) {
    if (!options.node_to_partition.contains(node.name)) missing.push_back(node.name);
  }
  if (!missing.empty()) {
    refuse(fmt::format("{} of {} nodes have no partition: {}{}", missing.size(),
                       problem.graph.num_nodes(), missing.front(),
                       missing.size() > 1 ? " and others" : ""),
           "one for every node of the graph");
  }
  for (const auto& [name, id] : options.node_to_partition) {
    const NodeId node = problem.graph.find_node(name);
    if (!node.valid()) {
      refuse(fmt::format("a partition for node '{}'", name),
             fmt::format("a node of graph '{}'", problem.graph.name()));
    }
    if (id < 0) refuse(fmt::format("node '{}' in partition {}", name, id), "a number from 0");
    const std::size_t unit = from.unit_of[node.index()];
    if (partition[unit] != kNone && partition[unit] != id) {
      refuse(fmt::format("node '{}' in partition {} and node '{}' in partition {}", name, id,
                         problem.graph.node(witness[unit]).name, partition[unit]),
             "one partition for both: they share memory that one of them writes");
    }
    partition[unit] = id;
    witness[unit] = node;
  }
  return partition;
}

}  // namespace

Outcome<Plan, Infeasible> size(const Problem& problem, const Options& options) {
  return run(problem, options, fx::Mode::size);
}
Outcome<Plan, Infeasible> sparse_nn(const Problem& problem, const Options& options) {
  return run(problem, options, fx::Mode::sparse_nn);
}
Outcome<Plan, Infeasible> cost_aware(const Problem& problem, const Options& options) {
  return run(problem, options, fx::Mode::cost_aware);
}
Outcome<Plan, Infeasible> kl(const Problem& problem, const Options& options) {
  return run(problem, options, fx::Mode::kl);
}

Outcome<Plan, Infeasible> aot(const Problem& problem, const Options& options) {
  // Memory is for Kerf's own engine to judge: tensors hardly count here.
  fx::FromProblem from = fx::from_problem(problem, fx::Mode::aot, kShares[0]);
  for (fx::Device& device : from.request.devices) device.memory = std::int64_t{1} << 60;
  const std::vector<std::int64_t> partition = unit_partitions(problem, options, from);
  for (const fx::OpIndex n : from.request.graph.ops()) {
    const std::int64_t id = partition[from.unit_of_node[n]];
    if (id >= 0) from.request.node_to_partition.emplace_back(n, id);
  }
  for (const auto& [id, name] : options.partition_to_device) {
    const DeviceId device = problem.cluster.find_device(name);
    if (!device.valid()) {
      refuse(fmt::format("partition {} on device '{}'", id, name), "a device of the cluster");
    }
    from.request.partition_to_devices.emplace_back(
        id, std::vector<std::int64_t>{static_cast<std::int64_t>(device.index())});
  }
  auto answer = fx::partition_graph(from.request);
  if (!answer) return answer.reason();
  return to_plan(problem, from, *answer, fx::Mode::aot);
}

}  // namespace kerf::partition
