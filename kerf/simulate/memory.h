// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// The one memory engine, for all planners. The verifier has a derivation of its own
// (verify/derive_memory.h).
//
// What is counted on a device, in bytes, for one micro-batch size:
//   weights      storages of the weights its stages use, once each;
//   task         while a stage runs: what its nodes have allocated and not yet released, by storage
//                (views cost nothing) and from first to last use, workspace and clones of written
//                storages of other stages included; and its input buffers (tensors from other
//                memories, graph inputs), which stay to its end;
//   gradients    training: as many bytes as the weights that are trained, and the optimizer's
//   state;
//                while an accelerator's optimizer steps, its temporaries;
//   held         between tasks: tensors made here, until the last stage that uses them has run;
//                tensors received for several stages of this device, until the last one has run;
//                results of the model, until the step ends; training: what a backward needs, until
//                it has run (training_footprint.h), and gradients, until the maker's backward has.
// When a consumer is on another device its progress depends on timing. The engine takes the worst:
// a tensor is held until the schedule's order itself guarantees that the consumer has run (vector
// clocks over the tasks), so that no timing can exceed the figure.
// Devices of one memory group share weights and pass tensors without a copy; the group's figure is
// the sum of its devices' peaks.
#pragma once

#include <span>
#include <vector>

#include "kerf/plan/plan.h"
#include "kerf/plan/problem.h"
#include "kerf/simulate/footprint.h"

namespace kerf {

// The sizes of a stage that do not depend on where the other stages run.
struct StageSizes {
  Bytes weights;
  Bytes activations;  // peak of what its nodes allocate
  Bytes inputs;       // tensors from other stages and the graph's inputs
  Bytes outputs;      // storages held for later stages or the caller
};

// Of a stage's forward pass. What only its backward needs is no output.
StageSizes stage_sizes(const Graph& graph, const Footprint& footprint, std::int64_t micro_batch,
                       std::size_t num_stages);

// By device. `schedule` must be one that cannot deadlock.
std::vector<DeviceMemory> device_memory(const Graph& graph, std::span<const StageId> stage_of,
                                        std::span<const DeviceId> stage_devices,
                                        const Cluster& cluster, const Schedule& schedule,
                                        std::int64_t micro_batch, std::span<const Bytes> workspace);

// What the passes of a plan need, wherever they run; found once for all copies.
struct PlanMemory {
  std::vector<Footprint> passes;  // by PassId
  std::vector<Bytes> saved;       // training: by stage, kept for its backward
};
PlanMemory plan_footprints(const Graph& graph, const Plan& plan, const Profile& profile);

// What each of several copies of the plan's stages needs alone, under the plan's schedule: by copy,
// then by device. A copy is the device of each stage; a good one shares devices as the plan does.
std::vector<std::vector<DeviceMemory>> copies_memory(const Graph& graph, const Plan& plan,
                                                     std::span<const std::vector<DeviceId>> copies,
                                                     const Profile& profile);
std::vector<std::vector<DeviceMemory>> copies_memory(const Graph& graph, const Plan& plan,
                                                     std::span<const std::vector<DeviceId>> copies,
                                                     const PlanMemory& footprints);
// Of two copies without a common device. Those in one memory share nothing: its bytes add up.
void add_memory(std::vector<DeviceMemory>& sum, std::span<const DeviceMemory> copy);

std::vector<DeviceMemory> sum_of_copies(std::vector<std::vector<DeviceMemory>> copies);

// The plan with its replicas, by device.
std::vector<DeviceMemory> plan_memory(const Graph& graph, const Plan& plan, const Profile& profile);

}  // namespace kerf
