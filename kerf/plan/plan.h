// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kerf/base/id.h"
#include "kerf/base/units.h"
#include "kerf/device/cluster.h"
#include "kerf/graph/graph.h"
#include "kerf/place/lower_bound.h"
#include "kerf/plan/comm_model.h"
#include "kerf/plan/problem.h"
#include "kerf/plan/schedule/schedule.h"
#include "kerf/profile/profile.h"

namespace kerf {

// Nodes that run together on one device. All sizes and times are for one micro-batch.
struct Stage {
  std::vector<NodeId> nodes;  // ascending
  DeviceId device;
  Nanoseconds time;  // forward compute on its device
  Bytes weights;     // distinct weight storages it uses
  Bytes
      activations;  // peak of what its nodes allocate, by storage and lifetime, workspace included
  Bytes inputs;     // what it reads from other stages and from the graph's inputs
  Bytes outputs;    // storages held for later stages or the caller
  // Stages it waits for: those that make a value it uses (scalars too) or come before it by an
  // order edge. Ascending, without repeats.
  std::vector<StageId> after;

  // Training; nothing of it otherwise.
  bool has_backward = false;  // something in it needs a gradient
  Nanoseconds backward;       // all gradients, what is computed again included
  // The share of `backward` that can wait: gradients of weights; all of it where the stage sends no
  // gradient to another; none where something runs again or as Python.
  Nanoseconds weight_gradients;
  Nanoseconds recompute;       // the share of `backward` that computes forwards again
  Bytes gradients;             // of its weights
  Bytes optimizer;             // the optimizer's state of its weights
  Bytes saved;                 // kept from its forward to its backward, weights left out
  Bytes backward_activations;  // peak of what its backward allocates, less what it has released

  friend bool operator==(const Stage&, const Stage&) = default;
};

// A tensor that leaves the stage that makes it. Weights and graph inputs never do; scalars and
// sizes in B go along with the tensors and have no bytes.
struct Cut {
  std::string tensor;
  ValueId value;
  Bytes bytes;  // one micro-batch
  StageId from;
  std::vector<StageId> to;         // stages that use it, ascending; on `from`'s own device too
  std::vector<StageId> gradients;  // training: those of `to` that send a gradient of it back
  // What it takes between any two devices, and its gradient too, where that was given
  // (Problem::transfer_times); otherwise the link says it.
  std::optional<Nanoseconds> cost = std::nullopt;

  friend bool operator==(const Cut&, const Cut&) = default;
};

// Steady state of one device, one micro-batch.
struct DeviceLoad {
  Nanoseconds compute;
  Nanoseconds communication;
  Nanoseconds busy() const { return compute + communication; }
  friend bool operator==(const DeviceLoad&, const DeviceLoad&) = default;
};

// Predicted memory of one device, by the engine in simulate/memory.h.
struct DeviceMemory {
  Bytes weights;      // of its stages, each storage once
  Bytes gradients;    // training: of those weights
  Bytes optimizer;    // training: its state of those weights
  Bytes activations;  // the most that is live beside the weights, under any timing of the schedule
  Bytes predicted;    // of the device's whole memory group: what is compared with the limit
  Bytes limit;
  bool limited = false;
  friend bool operator==(const DeviceMemory&, const DeviceMemory&) = default;
};

// Where every node runs, and what that is predicted to cost. A value; saved as plan.json, which
// holds all that `report` and `simulate` need.
struct Plan {
  std::string graph_hash;
  std::string graph_name;
  std::vector<std::string> node_names;  // of the whole graph, by NodeId

  std::string method;
  Objective objective = Objective::throughput;
  CommModel comm_model = CommModel::link;
  std::uint64_t seed = 0;
  bool truncated = false;   // a budget or the clock ended the search: a better plan may exist
  bool timed_out = false;   // the clock ended something: another run may give another plan
  bool contiguous = false;  // every stage is an interval of the graph's order

  Source profile_source = Source::estimated;
  std::string profile_kind;
  std::int64_t profile_batch = 0;

  Cluster cluster;
  std::string schedule = "fill_drain";
  int n_microbatches = 1;
  std::int64_t batch = 0;        // 0: the graph is static
  std::int64_t micro_batch = 0;  // ceil(batch / n_microbatches)
  int stages_per_device = 1;     // that were asked for: looped when there are several

  bool training = false;
  std::string optimizer;  // training: a name of profile/optimizer.h
  std::string recompute;  // training: what was asked for: none, all, as_traced, auto or list
  std::vector<std::string> recomputed;  // what runs forward again in backward: plan/recompute.h

  std::vector<Stage> stages;  // numbered topologically over data and order edges; none is empty
  std::vector<Cut> cuts;      // by value
  // Further copies of the whole plan, each for batches of its own: by copy the device of each
  // stage. No two copies, this plan among them, have a device in common, and two stages of a copy
  // share a device exactly when they do here. Only `memory` counts them: all other figures,
  // schedule and timeline are of this plan's own devices, which are those that the runtime runs on.
  std::vector<std::vector<DeviceId>> replicas;

  std::vector<DeviceLoad> loads;     // by device
  std::vector<DeviceMemory> memory;  // by device, replicas included
  Nanoseconds busiest;               // the objective `throughput`: largest loads[d].busy()
  Nanoseconds step_time;             // simulated, all micro-batches
  Nanoseconds latency;               // simulated, one micro-batch
  double throughput = 0;             // samples (static graph: steps) per second: batch / step_time
  double bubble = 0;                 // idle share of the step, 0 .. 1
  LowerBound lower_bound;            // on objective_value()

  std::vector<std::string> notes;

  // What the objective minimises: `busiest`, `latency` or `step_time` in ns, for `memory` the bytes
  // of the fullest device.
  double objective_value() const;
  // (objective_value - lower bound) / lower bound; 0 when both are 0.
  double gap() const;

  std::size_t num_stages() const { return stages.size(); }
  const Stage& stage(StageId id) const { return stages[id.index()]; }
  std::vector<DeviceId> stage_devices() const;
  // stage_devices() and the replicas.
  std::vector<std::vector<DeviceId>> copies() const;
  // The replicas by names of devices.
  std::vector<std::vector<std::string>> replica_names() const;
  // By NodeId::index(); an invalid id where no stage has the node.
  std::vector<StageId> stage_of_nodes() const;
  Bytes cut_bytes() const;       // what crosses between devices in one micro-batch, forward
  Bytes gradient_bytes() const;  // training: what comes back

  friend bool operator==(const Plan&, const Plan&) = default;
};

// A value of an objective with its unit: "3.2 ms", for `memory` "1.5 GiB".
std::string objective_text(Objective objective, double value);

// What the plan's stages do in a step.
StepShape step_shape(const Plan& plan);
// The plan's schedule, made afresh; with another number of micro-batches, or stages on other
// devices.
Schedule make_schedule(const Plan& plan);
Schedule make_schedule(const Plan& plan, std::span<const DeviceId> stage_devices,
                       int n_microbatches);

// Throws Error(invalid_plan) naming the copy when the replicas are not what Plan says of them. The
// stages' own devices must exist.
void check_replicas(const Plan& plan);

// Throws Error(invalid_plan) that names both hashes when the plan was made for another graph.
void check_plan_matches(const Plan& plan, const Graph& graph);

// plan.json: "kerf-plan" 1.5. Loading checks that the file is consistent in itself (ids, counts,
// every node at most once, replicas); whether it is a good plan for a graph is for verify_plan to
// say.
std::string print_plan(const Plan& plan);
Plan parse_plan(std::string_view text, std::string_view source = "plan");
void save_plan(const Plan& plan, const std::string& path);
Plan load_plan(const std::string& path);

}  // namespace kerf
