// SPDX-FileCopyrightText: The Kerf authors
// SPDX-License-Identifier: Apache-2.0
//
// What `measure` takes of the nodes of a loaded graph, by the kind of device and of run.
#pragma once

#include <functional>

#include "kerf/graph/graph.h"
#include "kerf/libtorch/measure.h"
#include "kerf/libtorch/neighbours.h"
#include "kerf/libtorch/torch_run.h"
#include "kerf/libtorch/torch_stage.h"
#include "kerf/profile/profile.h"

namespace kerf {

// A graph, or some of its nodes, ready to run on the thread that measures.
struct MeasuredStage {
  const Graph& graph;
  const std::vector<NodeId>& nodes;  // of the stage, by step
  TorchStage& stage;
  TorchRun& run;
  const std::vector<ParcelPtr>& received;  // what the stage takes from others
  c10::Device device;
  std::function<void()> restore;  // what a pass has written
};

// Both fill times, samples and workspaces of the nodes in `profile`, whose sizes are there, and add
// notes. With
// neighbours each pass is made twice: alone, and while they work.
void measure_forward(const MeasuredStage& measured, const MeasureOptions& options,
                     Neighbours& neighbours, Profile& profile);
void measure_training(const MeasuredStage& measured, const MeasureOptions& options,
                      Neighbours& neighbours, Profile& profile);

// What a neighbour does meanwhile: the same passes.
void keep_busy(const MeasuredStage& measured, bool training, Neighbours::Gate& gate);

}  // namespace kerf
