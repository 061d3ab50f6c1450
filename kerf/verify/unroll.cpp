// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/verify/unroll.h"

#include <algorithm>
#include <set>

namespace kerf::derive {
namespace {

// Stages that use a value in a node which has a backward.
std::vector<std::pair<ValueId, StageId>> find_gradients(const Graph& graph, const Flow& flow) {
  std::vector<std::pair<ValueId, StageId>> found;
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    if (!needs_gradient(graph, graph.nodes()[n])) continue;
    for (const NamedArgument& argument : graph.nodes()[n].args) {
      for_each_value(argument.value, [&](ValueId id) {
        const StageId maker = flow.maker[id.index()];
        const Value& value = graph.value(id);
        if (value.scalar || !value.requires_grad || !maker.valid()) return;
        if (maker != flow.stage_of[n]) found.emplace_back(id, flow.stage_of[n]);
      });
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

// The stages whose backward comes after that of `stage`, through backwards alone.
std::set<StageId> backwards_after(const Flow& flow, const std::vector<bool>& has_backward,
                                  StageId stage) {
  std::set<StageId> found;
  std::vector<StageId> open{stage};
  while (!open.empty()) {
    const StageId at = open.back();
    open.pop_back();
    for (const StageId before : flow.after[at.index()]) {
      if (has_backward[before.index()] && found.insert(before).second) open.push_back(before);
    }
  }
  return found;
}

// A gradient goes to the nearest earlier user of the value whose backward comes after its sender's
// anyway, which adds its own; without one to the maker.
std::vector<StageId> find_targets(const Flow& flow, const std::vector<bool>& has_backward,
                                  const std::vector<std::pair<ValueId, StageId>>& gradients) {
  std::vector<StageId> targets;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const auto [value, user] = gradients[i];
    StageId target = flow.maker[value.index()];
    std::set<StageId> later;
    if (i > 0 && gradients[i - 1].first == value) later = backwards_after(flow, has_backward, user);
    for (std::size_t j = i; j-- > 0 && gradients[j].first == value;) {
      if (!later.contains(gradients[j].second)) continue;
      target = gradients[j].second;
      break;
    }
    targets.push_back(target);
  }
  return targets;
}

}  // namespace

bool needs_gradient(const Graph& graph, const Node& node) {
  bool any = false;
  for (const ValueId id : node.outputs) any = any || (id.valid() && graph.value(id).requires_grad);
  return any && node.grad_enabled;
}

Unrolled unroll_step(const Graph& graph, const Flow& flow, const Plan& plan) {
  Unrolled out;
  const std::size_t stages = flow.num_stages();
  out.apart = find_schedule(plan.schedule)->apart;
  out.has_backward.resize(stages);
  for (std::size_t n = 0; n < graph.num_nodes(); ++n) {
    if (needs_gradient(graph, graph.nodes()[n])) {
      out.has_backward[flow.stage_of[n].index()] = true;
    }
  }
  out.gradients_from = find_gradients(graph, flow);
  out.gradients_to = find_targets(flow, out.has_backward, out.gradients_from);
  out.plan.cluster = plan.cluster;
  out.plan.comm_model = plan.comm_model;
  out.plan.micro_batch = plan.micro_batch;
  out.plan.stages.resize(stages * (out.apart ? 3 : 2));
  out.flow.after.resize(out.plan.stages.size());
  for (std::size_t s = 0; s < stages; ++s) {
    const Stage& stage = plan.stages[s];
    for (std::size_t p = s; p < out.plan.stages.size(); p += stages) {
      out.plan.stages[p].device = stage.device;
    }
    out.plan.stages[s].time = stage.time;
    out.flow.after[s] = flow.after[s];
    ++out.passes;
    if (!out.has_backward[s]) continue;
    const std::size_t b = out.backward(StageId{s});
    out.plan.stages[b].time = stage.backward;
    out.flow.after[b].emplace_back(s);
    ++out.passes;
    if (out.apart) {
      out.plan.stages[b].time = stage.backward - stage.weight_gradients;
      out.plan.stages[b + stages].time = stage.weight_gradients;
      out.flow.after[b + stages].emplace_back(b);
      ++out.passes;
    }
    for (const StageId before : flow.after[s]) {
      if (!out.has_backward[before.index()]) continue;
      out.flow.after[out.backward(before)].emplace_back(b);
    }
  }
  out.traffic = read_traffic(graph, flow, plan);
  for (std::size_t i = 0; i < out.gradients_from.size(); ++i) {
    const auto& [value, user] = out.gradients_from[i];
    const auto bytes = static_cast<double>(graph.value(value).bytes(plan.micro_batch).count);
    add_shipment(out.plan, out.traffic, value, StageId{out.backward(user)}, bytes,
                 {StageId{out.backward(out.gradients_to[i])}});
  }
  return out;
}

TaskOrder order_tasks(const Unrolled& unrolled, const Plan& plan,
                      const std::vector<DeviceId>& devices, int n_microbatches) {
  const std::size_t stages = plan.num_stages();
  std::vector<std::vector<Task>> by_device;
  for (const auto& tasks : make_schedule(plan, devices, n_microbatches)) {
    std::vector<Task>& own = by_device.emplace_back();
    for (const kerf::Task& task : tasks) {
      own.push_back({task.stage.index() + static_cast<std::size_t>(task.phase) * stages,
                     static_cast<std::size_t>(task.microbatch)});
    }
  }
  const auto count = static_cast<std::size_t>(n_microbatches);
  return {std::move(by_device), unrolled.passes * count, unrolled.flow.after, count};
}

}  // namespace kerf::derive
