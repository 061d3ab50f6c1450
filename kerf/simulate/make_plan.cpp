// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/simulate/make_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <queue>
#include <set>

#include "kerf/base/interrupt.h"
#include "kerf/base/stop_clock.h"
#include "kerf/graph/has_backward.h"
#include "kerf/plan/metrics.h"
#include "kerf/plan/passes.h"
#include "kerf/plan/recompute.h"
#include "kerf/profile/optimizer.h"
#include "kerf/simulate/memory.h"
#include "kerf/simulate/step.h"
#include "kerf/simulate/training_footprint.h"

namespace kerf {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorKind::invalid_plan, "[simulate.make_plan] " + message);
}

struct Placed {
  std::vector<NodeId> nodes;
  DeviceId device;
};

std::vector<Placed> collect(const Problem& problem, std::vector<std::vector<NodeId>> stages,
                            const std::vector<DeviceId>& devices) {
  if (stages.size() != devices.size()) {
    refuse(fmt::format("{} stages and {} devices; expected a device for each stage", stages.size(),
                       devices.size()));
  }
  std::vector<Placed> placed;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    if (devices[s].index() >= problem.cluster.num_devices()) {
      refuse(fmt::format("stage {} is on device {}; the cluster has {}", s, devices[s].index(),
                         problem.cluster.num_devices()));
    }
    if (stages[s].empty()) continue;
    std::sort(stages[s].begin(), stages[s].end());
    placed.push_back({std::move(stages[s]), devices[s]});
  }
  return placed;
}

std::vector<StageId> index_stages(const Graph& graph, const std::vector<Placed>& placed) {
  std::vector<StageId> stage_of(graph.num_nodes());
  for (std::size_t s = 0; s < placed.size(); ++s) {
    for (const NodeId node : placed[s].nodes) {
      if (node.index() >= graph.num_nodes()) {
        refuse(fmt::format("stage {} names node {}; the graph has {} nodes", s, node.index(),
                           graph.num_nodes()));
      }
      if (stage_of[node.index()].valid()) {
        refuse(fmt::format("node '{}' is in two stages", graph.node(node).name));
      }
      stage_of[node.index()] = StageId{s};
    }
  }
  const auto missing = std::find(stage_of.begin(), stage_of.end(), StageId{});
  if (missing != stage_of.end()) {
    const NodeId node{missing - stage_of.begin()};
    refuse(fmt::format("node '{}' is in no stage", graph.node(node).name));
  }
  return stage_of;
}

// Kahn's algorithm; among the stages that may come next the one with the smallest first node.
std::vector<std::size_t> topological_order(const Graph& graph, const std::vector<Placed>& placed) {
  const std::vector<StageId> stage_of = index_stages(graph, placed);
  const auto after = stage_dependencies(graph, stage_of, placed.size());
  std::vector<std::vector<std::size_t>> followers(placed.size());
  std::vector<std::size_t> waiting(placed.size());
  using Ready = std::pair<NodeId, std::size_t>;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
  for (std::size_t s = 0; s < placed.size(); ++s) {
    for (const StageId before : after[s]) followers[before.index()].push_back(s);
    waiting[s] = after[s].size();
    if (waiting[s] == 0) ready.push({placed[s].nodes.front(), s});
  }
  std::vector<std::size_t> order;
  while (!ready.empty()) {
    const std::size_t stage = ready.top().second;
    ready.pop();
    order.push_back(stage);
    for (const std::size_t follower : followers[stage]) {
      if (--waiting[follower] == 0) ready.push({placed[follower].nodes.front(), follower});
    }
  }
  if (order.size() != placed.size()) refuse("the stages wait for each other in a cycle");
  return order;
}

Plan describe(const Problem& problem, std::string method) {
  Plan plan;
  plan.graph_hash = problem.graph.hash();
  plan.graph_name = problem.graph.name();
  for (const Node& node : problem.graph.nodes()) plan.node_names.push_back(node.name);
  plan.method = std::move(method);
  plan.objective = problem.objective;
  plan.comm_model = problem.comm_model;
  plan.seed = problem.seed;
  plan.profile_source = problem.profile.source;
  plan.profile_kind = problem.profile.device_kind;
  plan.profile_batch = problem.profile.batch;
  plan.cluster = problem.cluster;
  plan.schedule = problem.schedule;
  plan.n_microbatches = problem.n_microbatches;
  plan.batch = problem.batch_size();
  plan.micro_batch = problem.micro_batch();
  plan.stages_per_device = problem.stages_per_device;
  plan.training = problem.training;
  if (plan.training) {
    plan.optimizer = problem.optimizer;
    plan.recompute = problem.recompute;
    plan.recomputed = problem.recomputed;
  }
  plan.notes = problem.cluster.notes;
  if (problem.batch == 0 && plan.batch > problem.graph.data().example_batch) {
    plan.notes.push_back(fmt::format(
        "the traced example has a batch of {}: planned for {}, one sample per micro-batch",
        problem.graph.data().example_batch, plan.batch));
  }
  if (plan.profile_batch != plan.micro_batch && plan.profile_batch != 0 && plan.micro_batch != 0) {
    plan.notes.push_back(fmt::format(
        "times were profiled at batch {} and scaled in proportion to the micro-batch of {}",
        plan.profile_batch, plan.micro_batch));
  }
  return plan;
}

void fill_backward(const Problem& problem, Stage& stage, double speed) {
  std::set<std::uint32_t> again;  // blocks with a backward here
  for (const NodeId node : stage.nodes) {
    if (!has_backward(problem.graph, node)) continue;
    stage.has_backward = true;
    stage.backward += problem.backward_time(node);
    stage.weight_gradients += problem.weight_gradient_time(node);
    if (problem.is_recomputed(node)) again.insert(problem.recompute_block[node.index()]);
  }
  for (const NodeId node : stage.nodes) {
    if (problem.is_recomputed(node) && again.contains(problem.recompute_block[node.index()])) {
      stage.recompute += problem.forward_time(node);
    }
  }
  stage.weight_gradients = stage.weight_gradients / speed;
  stage.recompute = stage.recompute / speed;
  stage.backward = stage.backward / speed + stage.recompute;
}

// What runs again or as Python makes all its gradients at once; a stage that sends none to others
// has nothing to make before those of its weights.
void settle_weight_gradients(const Problem& problem, Plan& plan) {
  const std::vector<bool> sends = gradient_senders(plan);
  for (std::size_t s = 0; s < plan.num_stages(); ++s) {
    Stage& stage = plan.stages[s];
    const bool whole = std::any_of(stage.nodes.begin(), stage.nodes.end(), [&](NodeId node) {
      return problem.is_recomputed(node) || problem.graph.node(node).op == "opaque";
    });
    if (whole) stage.weight_gradients = {};
    if (!whole && !sends[s]) stage.weight_gradients = stage.backward;
  }
}

// `trained` by storage.
void fill_sizes(const Problem& problem, const PlanMemory& memory, const std::vector<bool>& trained,
                std::size_t num_stages, Stage& stage, StageId id) {
  const Footprint& forward = memory.passes[id.index()];
  const StageSizes sizes = stage_sizes(problem.graph, forward, problem.micro_batch(), num_stages);
  stage.weights = sizes.weights;
  stage.activations = sizes.activations;
  stage.inputs = sizes.inputs;
  stage.outputs = sizes.outputs;
  if (!problem.training) return;
  for (const StorageId weight : forward.weights) {
    if (!trained[weight.index()]) continue;
    stage.gradients += Bytes{problem.graph.storage(weight).bytes.eval(problem.micro_batch())};
  }
  stage.optimizer = stage.gradients * optimizer(problem.optimizer).state;
  stage.saved = memory.saved[id.index()];
  // Where gradients of weights are apart, a pass of their own follows.
  for (std::size_t pass = num_stages + id.index(); pass < memory.passes.size();
       pass += num_stages) {
    stage.backward_activations =
        std::max(stage.backward_activations, memory.passes[pass].activations);
  }
}

void fill_stages(const Problem& problem, Plan& plan) {
  const std::vector<StageId> stage_of = plan.stage_of_nodes();
  const auto after = stage_dependencies(problem.graph, stage_of, plan.num_stages());
  for (std::size_t s = 0; s < plan.num_stages(); ++s) {
    Stage& stage = plan.stages[s];
    stage.after = after[s];
    const double speed = plan.cluster.device(stage.device).speed;
    for (const NodeId node : stage.nodes) stage.time += problem.forward_time(node);
    stage.time = stage.time / speed;
    if (plan.training) fill_backward(problem, stage, speed);
  }
  plan.cuts = find_cuts(problem.graph, stage_of, plan.micro_batch);
  for (Cut& cut : plan.cuts) cut.cost = problem.given_transfer(cut.value);
  if (plan.training) {
    find_gradients(problem.graph, stage_of, plan.cuts);
    settle_weight_gradients(problem, plan);
  }
  const PlanMemory memory = plan_footprints(problem.graph, plan, problem.profile);
  std::vector<bool> trained;
  if (problem.training) trained = trained_storages(problem.graph);
  for (std::size_t s = 0; s < plan.num_stages(); ++s) {
    fill_sizes(problem, memory, trained, plan.num_stages(), plan.stages[s], StageId{s});
  }
  plan.memory = sum_of_copies(copies_memory(problem.graph, plan, plan.copies(), memory));
}

bool is_interval(const Stage& stage) {
  return stage.nodes.back().index() - stage.nodes.front().index() + 1 == stage.nodes.size();
}

void predict(Plan& plan) {
  const Passes passes = unroll(plan);
  plan.loads = device_loads(passes.stages, passes.cuts, plan.cluster, plan.comm_model);
  plan.busiest = busiest(plan.loads);
  const StepFigures step = simulate_step(plan, plan.n_microbatches);
  plan.step_time = step.end;
  plan.bubble = step.bubble;
  plan.latency = simulate_step(plan, 1).end;
  const double samples = plan.batch > 0 ? static_cast<double>(plan.batch) : 1;
  plan.throughput = samples_per_second(samples, plan.step_time);
}

// The figures of times are those of the plan's own devices.
void note_speeds(Plan& plan) {
  std::vector<std::size_t> others;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    for (std::size_t s = 0; s < plan.num_stages(); ++s) {
      if (plan.cluster.device(plan.replicas[r][s]).speed ==
          plan.cluster.device(plan.stages[s].device).speed) {
        continue;
      }
      others.push_back(r);
      break;
    }
  }
  if (others.empty()) return;
  plan.notes.push_back(fmt::format(
      "replicas {} are on devices of other speeds: predicted times do not apply to them",
      fmt::join(others, ", ")));
}

// Micro-batches that a prediction follows one by one: what repeats itself is left out, but where
// transfers overlap with compute or share a wire.
std::int64_t followed_microbatches(const Problem& problem, std::size_t num_stages) {
  const std::vector<Link>& links = problem.cluster.links;
  const bool all = problem.training || problem.comm_model == CommModel::overlapped ||
                   std::any_of(links.begin(), links.end(), [](const Link& l) { return l.shared; });
  const std::size_t few = 2 * (problem.cluster.num_devices() + 1) * (num_stages + 1) + 4;
  const std::int64_t count = problem.n_microbatches;
  return all ? count : std::min(count, static_cast<std::int64_t>(few));
}

}  // namespace

std::int64_t plan_size(const Problem& problem, std::size_t num_stages) {
  const auto nodes = static_cast<std::int64_t>(problem.graph.num_nodes() + 50);
  const auto stages = static_cast<std::int64_t>(num_stages + 4);
  return nodes + 4 * followed_microbatches(problem, num_stages) * stages;
}

Plan make_plan(const Problem& problem, std::vector<std::vector<NodeId>> stages,
               std::vector<DeviceId> devices, std::string method) {
  poll_interrupt();
  constexpr std::int64_t kStepsEach = 100;
  count_steps(kStepsEach * plan_size(problem, stages.size()));
  std::vector<Placed> placed = collect(problem, std::move(stages), devices);
  Plan plan = describe(problem, std::move(method));
  for (const std::size_t s : topological_order(problem.graph, placed)) {
    Stage& stage = plan.stages.emplace_back();
    stage.nodes = std::move(placed[s].nodes);
    stage.device = placed[s].device;
  }
  plan.contiguous = std::all_of(plan.stages.begin(), plan.stages.end(), is_interval);
  fill_stages(problem, plan);
  predict(plan);
  return plan;
}

Plan with_replicas(const Problem& problem, Plan plan, std::vector<std::vector<DeviceId>> replicas) {
  plan.replicas = std::move(replicas);
  check_replicas(plan);
  plan.memory = plan_memory(problem.graph, plan, problem.profile);
  note_speeds(plan);
  return plan;
}

}  // namespace kerf
