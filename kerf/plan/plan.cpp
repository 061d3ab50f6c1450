// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#include "kerf/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kerf/plan/metrics.h"
#include "kerf/plan/passes.h"

namespace kerf {
namespace {

// One copy, on devices that nobody has taken yet.
void check_replica(const Plan& plan, std::size_t r, std::vector<bool>& taken) {
  const auto refuse = [&](const std::string& found, std::string_view expected) {
    throw Error(ErrorKind::invalid_plan,
                fmt::format("[plan.check_replicas] replica {} {}; expected {}; plan again", r,
                            found, expected));
  };
  const std::vector<DeviceId>& replica = plan.replicas[r];
  if (replica.size() != plan.num_stages()) {
    refuse(fmt::format("has {} devices for {} stages", replica.size(), plan.num_stages()),
           "one for each stage");
  }
  std::vector<DeviceId> copy_of(taken.size());  // by device of the plan
  std::vector<DeviceId> original(taken.size());
  for (std::size_t s = 0; s < replica.size(); ++s) {
    const DeviceId there = replica[s];
    const DeviceId here = plan.stages[s].device;
    if (there.index() >= taken.size()) {
      refuse(fmt::format("has stage {} on device {}", s, there.index()),
             fmt::format("one of the {} devices", taken.size()));
    }
    if (taken[there.index()]) {
      refuse(fmt::format("has stage {} on {}, which has another replica's stages", s,
                         plan.cluster.device(there).name),
             "devices of its own");
    }
    DeviceId& copy = copy_of[here.index()];
    DeviceId& origin = original[there.index()];
    if ((copy.valid() && copy != there) || (origin.valid() && origin != here)) {
      refuse(fmt::format("has stage {} on {}", s, plan.cluster.device(there).name),
             "stages to share a device exactly when they do in the plan");
    }
    copy = there;
    origin = here;
  }
  for (const DeviceId device : replica) taken[device.index()] = true;
}

}  // namespace

double Plan::objective_value() const {
  switch (objective) {
    case Objective::throughput: return busiest.count;
    case Objective::latency: return latency.count;
    case Objective::step: return step_time.count;
    case Objective::memory: break;
  }
  Bytes fullest;
  for (const DeviceMemory& device : memory) fullest = std::max(fullest, device.predicted);
  return static_cast<double>(fullest.count);
}

double Plan::gap() const {
  const double value = objective_value();
  if (value <= lower_bound.value) return 0;
  return lower_bound.value > 0 ? value / lower_bound.value - 1
                               : std::numeric_limits<double>::infinity();
}

std::string objective_text(Objective objective, double value) {
  if (objective != Objective::memory) return to_string(Nanoseconds{value});
  return to_string(Bytes{static_cast<std::int64_t>(std::llround(value))});
}

std::vector<DeviceId> Plan::stage_devices() const {
  std::vector<DeviceId> devices;
  for (const Stage& stage : stages) devices.push_back(stage.device);
  return devices;
}

std::vector<std::vector<DeviceId>> Plan::copies() const {
  std::vector<std::vector<DeviceId>> all{stage_devices()};
  all.insert(all.end(), replicas.begin(), replicas.end());
  return all;
}

std::vector<std::vector<std::string>> Plan::replica_names() const {
  std::vector<std::vector<std::string>> all;
  for (const std::vector<DeviceId>& replica : replicas) {
    std::vector<std::string>& names = all.emplace_back();
    for (const DeviceId device : replica) names.push_back(cluster.device(device).name);
  }
  return all;
}

std::vector<StageId> Plan::stage_of_nodes() const {
  std::vector<StageId> stage_of(node_names.size());
  for (std::size_t s = 0; s < stages.size(); ++s) {
    for (const NodeId node : stages[s].nodes) stage_of[node.index()] = StageId{s};
  }
  return stage_of;
}

Bytes Plan::cut_bytes() const {
  Bytes sum;
  for (const Cut& cut : cuts) {
    sum += cut.bytes * static_cast<std::int64_t>(receivers(stages, cut).size());
  }
  return sum;
}

Bytes Plan::gradient_bytes() const {
  if (!training) return {};
  const Passes passes = unroll(*this);
  Bytes sum;
  for (std::size_t c = cuts.size(); c < passes.cuts.size(); ++c) sum += passes.cuts[c].bytes;
  return sum;
}

StepShape step_shape(const Plan& plan) {
  StepShape shape;
  for (const Stage& stage : plan.stages) {
    shape.after.push_back(stage.after);
    if (plan.training) shape.backward.push_back(stage.has_backward);
  }
  shape.apart = plan.training && schedule_kind(plan.schedule).apart;
  return shape;
}

Schedule make_schedule(const Plan& plan) {
  return make_schedule(plan, plan.stage_devices(), plan.n_microbatches);
}

Schedule make_schedule(const Plan& plan, std::span<const DeviceId> stage_devices,
                       int n_microbatches) {
  return schedule_kind(plan.schedule)
      .make({{stage_devices.begin(), stage_devices.end()},
             static_cast<int>(plan.cluster.num_devices()),
             n_microbatches,
             step_shape(plan)});
}

void check_replicas(const Plan& plan) {
  std::vector<bool> taken(plan.cluster.num_devices());
  for (const Stage& stage : plan.stages) taken[stage.device.index()] = true;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) check_replica(plan, r, taken);
}

void check_plan_matches(const Plan& plan, const Graph& graph) {
  if (plan.graph_hash == graph.hash()) return;
  throw Error(ErrorKind::invalid_plan,
              fmt::format("[plan.check] the plan was made for graph '{}' with hash {}; the graph "
                          "here, '{}', has hash {}; plan this graph, or load the other one",
                          plan.graph_name, plan.graph_hash, graph.name(), graph.hash()));
}

}  // namespace kerf
